"""Lists the history of a repository, newest commit first. Returns a page of commits as a JSON array."""

from . import CLIENT, UNSET, Choice, Field, Input

FieldsItem = Choice("FieldsItem", "sha html_url commit author committer")


class Params(Input):
    owner: str  # The user or organization that the repository belongs to.
    repo: str  # The repository's name, without its owner.
    sha: str = UNSET
    """Where the history starts: branch, tag or commit; the default branch if not given."""
    author: str = UNSET
    """Keep this author's commits only: a login or an e-mail address."""
    path: str = UNSET  # Keep commits only that touch this file or directory.
    since: str = UNSET  # Keep commits from this time on only, in ISO 8601.
    until: str = UNSET  # Keep commits up to this time only, in ISO 8601.
    fields: list[FieldsItem] = UNSET  # The fields of a commit to return; all of them if not given.
    page: float = Field(default=UNSET, ge=1)  # Which page to return, counted from 1.
    perPage: float = Field(default=UNSET, ge=1, le=100)  # How many results make a page; 30 if not given.


@CLIENT.tool
def run(params: Params) -> str: ...


run_many, run_many_async = run.many, run.many_async
run_async = run.aio
