"""The words of queries and names: their forms, short ones, and those that mean the same."""

import pytest

from ipybox.codeact.search import changes, query_words, stem, synonyms, words_of


@pytest.mark.parametrize(
    "forms",
    [
        "create creates created creating creation",
        "delete deletes deleted deleting deletion",
        "query queries queried querying",
        "notify notifies notified notification notifications",
        "modify modified modification",
        "describe description descriptions",
        "subscribe subscription",
        "translate translated translation",
        "collaborate collaborator collaborators",
        "assign assigned assignee assignees",
        "deploy deploys deployed deployment",
        "attach attachment attachments",
        "status statuses",
        "branch branches",
        "approve approval",
        "commit committed committing",
    ],
    ids=lambda forms: forms.split()[0],
)
def test_forms_of_a_word_have_the_same_stem(forms: str):
    assert len({stem(form) for form in forms.split()}) == 1


@pytest.mark.parametrize("words", ["string list thing", "speed spec", "comment command", "action active", "need new"])
def test_other_words_have_other_stems(words: str):
    assert len({stem(word) for word in words.split()}) == len(words.split())


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("list open PRs", "list open pull requests"),
        ("open PR from my branch", "create pull request branch"),
        ("open merge requests", "open pull requests"),
        ("raise a ticket", "create ticket"),
        ("open the log file", "read log file"),
        ("bring branch up to date", "update branch up date"),
        ("look up users", "find users"),
        ("close it without merging", "close"),
        ("what time is it now", "time current"),
        ("who has write access", "people access write"),
    ],
)
def test_queries_are_read_in_the_words_of_tools(query: str, words: str):
    assert query_words(query) == words.split()


def test_names_and_texts_write_out_short_forms():
    assert words_of("listPRs sub_issue repo_path") == ["list", "pull", "requests", "sub", "issue", "repository", "path"]


def test_what_undoes_one_word_undoes_its_synonyms():
    assert "unstar" in synonyms("unfavorite")
    assert stem("edit") in synonyms("change") - synonyms("changed")


@pytest.mark.parametrize(
    ("words", "changing"),
    [
        ("list commits", False),
        ("commit files", True),
        ("file create", True),
        ("comment issue", True),
        ("issue comment", False),
    ],
)
def test_nouns_are_verbs_only_as_the_first_word(words: str, changing: bool):
    assert changes(words.split()) is changing
