"""Which descriptions are left out of generated modules, as names say the same."""

import subprocess
import sys

import pytest

from ipybox.mcp_apigen.render.redundancy import is_redundant, known_words, without_remarks

KNOWN = known_words(["update_pull_request", "owner", "repo", "pullNumber", "direction", "base-branch"])


@pytest.mark.parametrize(
    "description",
    [
        "",
        "Repository owner",
        "The owner of the repository.",
        "Pull request number to update",
        "the number of the pull-request",
        "Base branch, string",
        "Number of results of the pull request",
    ],
)
def test_names_once_more_say_nothing(description: str):
    assert is_redundant(description, KNOWN)


@pytest.mark.parametrize(
    "description",
    [
        "Repository owner (username or organization)",
        "Owner of the fork",
        "Pull request number (min 1)",
        "Direction: asc or desc",
        "Default: false",
        "Branch 2",
        "所有者",
        "Besitzer",
        "'owner'",
    ],
)
def test_every_other_word_says_something(description: str):
    assert not is_redundant(description, KNOWN)


@pytest.mark.parametrize(
    ("description", "left"),
    [
        ("Page of the list (min 1, max 100)", "Page of the list"),
        ("Page (Max 100) of the list", "Page of the list"),
        ("Page of the list (optional)", "Page of the list"),
        ("(optional, min 1)", ""),
    ],
)
def test_remarks_that_the_type_makes_are_left_out(description: str, left: str):
    assert without_remarks(description, (("ge", 1), ("le", 100)), required=False) == left


@pytest.mark.parametrize(
    "description",
    [
        "Page (min 0)",
        "Page (max 10)",
        "Page (min 1, default 1)",
        "Page (optional for owners)",
        "Page (required)",
        "Page ()",
    ],
)
def test_other_remarks_stay(description: str):
    assert without_remarks(description, (("ge", 1), ("le", 100)), required=False) == description


def test_a_description_of_spaces_holds_nothing_up():
    code = "from ipybox.mcp_apigen.render.redundancy import *; without_remarks(' ' * 1_000_000, (), required=False)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_remarks_on_limits_stay_where_the_type_has_none():
    assert without_remarks("Page (min 1)", (), required=True) == "Page (min 1)"
