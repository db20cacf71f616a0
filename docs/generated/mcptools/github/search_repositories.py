"""Searches the repositories that the token can see. Returns a page of matches as JSON, with the number of all matches."""

from . import CLIENT, UNSET, Choice, Field, Input

Sort = Choice(
    "Sort",
    {"stars": "stars", "forks": "forks", "help_wanted_issues": "help-wanted-issues", "updated": "updated"},
)

Order = Choice("Order", "asc desc")


class Params(Input):
    query: str
    """Words to look for in names and descriptions, and qualifiers that narrow the search: user:NAME, language:NAME,
    topic:NAME, stars:>N."""
    sort: Sort = UNSET  # What the matches are sorted by; the best match comes first if not given.
    order: Order = UNSET  # Whether the smallest or the largest comes first, if `sort` is given.
    minimal_output: bool = UNSET  # Whether each match is cut down to its most useful fields. (default true)
    page: float = Field(default=UNSET, ge=1)  # Which page to return, counted from 1.
    perPage: float = Field(default=UNSET, ge=1, le=100)  # How many results make a page; 30 if not given.


@CLIENT.tool
def run(params: Params) -> str: ...


run_many, run_many_async = run.many, run.many_async
run_async = run.aio


from pydantic import BaseModel


class Repository(BaseModel):
    name: str
    full_name: str
    """Owner and name, as in owner/name."""
    url: str
    description: str
    """Empty if it has none."""
    language: str
    """Empty if GitHub has recognized none."""
    stargazers_count: int
    forks_count: int
    updated_at: str
    """In ISO 8601."""


class ParseResult(BaseModel):
    total: int
    """The number of all matches; `repositories` has those of one page."""
    repositories: list[Repository]


def run_parsed(params: Params) -> ParseResult:
    """Searches like `run`, and returns the matches of a page as objects."""
    from mcpparse.github import search_repositories as parser

    return parser.parse(run(params))
