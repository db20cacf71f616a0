"""Which descriptions are left out of generated modules, as names say the same."""

import pytest

from ipybox.mcp_apigen.render.source import is_redundant

#: From the names `update_pull_request`, `owner`, `repo`, `pullNumber`, `direction` and `base-branch`.
KNOWN = {"base", "branch", "direction", "number", "owner", "pull", "repo", "request", "update"}


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
