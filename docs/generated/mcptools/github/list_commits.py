from typing import Annotated

from ipybox.tool_exec.models import UNSET, Choice, ToolParams, wire
from pydantic import Field

from . import CLIENT


class FieldsItem(Choice):
    sha = "sha"
    html_url = "html_url"
    commit = "commit"
    author = "author"
    committer = "committer"


class Params(ToolParams):
    owner: str
    """The user or organization that the repository belongs to."""
    repo: str
    """The repository's name, without its owner."""
    sha: str = UNSET
    """Where the history starts: branch, tag or commit; the default branch if not given."""
    author: str = UNSET
    """Keep this author's commits only: a login or an e-mail address."""
    path: str = UNSET
    """Keep commits only that touch this file or directory."""
    since: str = UNSET
    """Keep commits from this time on only, in ISO 8601."""
    until: str = UNSET
    """Keep commits up to this time only, in ISO 8601."""
    fields: list[FieldsItem] = UNSET
    """The fields of a commit to return; all of them if not given."""
    page: Annotated[int | float, Field(ge=1)] = UNSET
    """Which page to return, counted from 1."""
    perPage: Annotated[int | float, Field(ge=1, le=100)] = UNSET
    """How many results make a page; 30 if not given."""


def run(params: Params) -> str:
    """Lists the history of a repository, newest commit first. Returns a page of commits as a JSON array."""
    return CLIENT.run_text("list_commits", wire(params))


async def run_async(params: Params) -> str:
    return await CLIENT.arun_text("list_commits", wire(params))
