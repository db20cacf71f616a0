"""A stand-in of GitHub's MCP server: two of its tools, over invented data that is the same at every start.

    python tests/github_server.py [--http [--token TOKEN]] [--tools FILE] [--count N]

It serves stdio, or with --http Streamable HTTP on loopback, whose URL is the one line that it prints. With a token
(--token, or the environment variable GITHUB_SERVER_TOKEN) every HTTP request must carry it as its bearer.

--tools lists the tools of a file, a JSON array as `tools/list` has it, instead of our two; --count makes the list this
long, the two that work first, by leaving tools out or by repeating them under other names. What is not one of the two
answers with an error, except for `create_issue`, which answers as if it had created one.

Names, parameters and the JSON of the results are those of the real server; the words are ours. Tools have no output
schema, as there.
"""

import argparse
import asyncio
import hashlib
import hmac
import json
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from starlette.types import ASGIApp, Receive, Scope, Send

TOKEN_VARIABLE = "GITHUB_SERVER_TOKEN"
PATH = "/mcp/"

Arguments = dict[str, Any]
T = TypeVar("T")


# --- what the tools say of themselves

PAGING: dict[str, Any] = {
    "page": {"type": "number", "minimum": 1, "description": "Which page to return, counted from 1."},
    "perPage": {
        "type": "number",
        "minimum": 1,
        "maximum": 100,
        "description": "How many results make a page; 30 if not given.",
    },
}

SEARCH_REPOSITORIES = types.Tool(
    name="search_repositories",
    description="Searches the repositories that the token can see. Returns a page of matches as JSON, with the number "
    "of all matches.",
    annotations=types.ToolAnnotations(title="Repository search", read_only_hint=True),
    input_schema={
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "Words to look for in names and descriptions, and qualifiers that narrow the search: "
                "user:NAME, language:NAME, topic:NAME, stars:>N.",
            },
            "sort": {
                "type": "string",
                "enum": ["stars", "forks", "help-wanted-issues", "updated"],
                "description": "What the matches are sorted by; the best match comes first if not given.",
            },
            "order": {
                "type": "string",
                "enum": ["asc", "desc"],
                "description": "Whether the smallest or the largest comes first, if `sort` is given.",
            },
            "minimal_output": {
                "type": "boolean",
                "default": True,
                "description": "Whether each match is cut down to its most useful fields.",
            },
            **PAGING,
        },
        "required": ["query"],
    },
)

LIST_COMMITS = types.Tool(
    name="list_commits",
    description="Lists the history of a repository, newest commit first. Returns a page of commits as a JSON array.",
    annotations=types.ToolAnnotations(title="Commit history", read_only_hint=True),
    input_schema={
        "type": "object",
        "properties": {
            "owner": {"type": "string", "description": "The user or organization that the repository belongs to."},
            "repo": {"type": "string", "description": "The repository's name, without its owner."},
            "sha": {
                "type": "string",
                "description": "Where the history starts: branch, tag or commit; the default branch if not given.",
            },
            "author": {
                "type": "string",
                "description": "Keep this author's commits only: a login or an e-mail address.",
            },
            "path": {"type": "string", "description": "Keep commits only that touch this file or directory."},
            "since": {"type": "string", "description": "Keep commits from this time on only, in ISO 8601."},
            "until": {"type": "string", "description": "Keep commits up to this time only, in ISO 8601."},
            "fields": {
                "type": "array",
                "items": {"type": "string", "enum": ["sha", "html_url", "commit", "author", "committer"]},
                "description": "The fields of a commit to return; all of them if not given.",
            },
            **PAGING,
        },
        "required": ["owner", "repo"],
    },
)

CREATE_ISSUE = types.Tool(
    name="create_issue",
    description="Opens an issue in a repository. Returns its URL as JSON.",
    annotations=types.ToolAnnotations(title="New issue", read_only_hint=False),
    input_schema={
        "type": "object",
        "properties": {
            "owner": {"type": "string", "description": "The user or organization that the repository belongs to."},
            "repo": {"type": "string", "description": "The repository's name, without its owner."},
            "title": {"type": "string", "description": "The issue's title."},
            "body": {"type": "string", "description": "The issue's text."},
        },
        "required": ["owner", "repo", "title"],
    },
)


# --- the data

#: Users, with the number of repositories that each has.
USERS = {"torvalds": 9, "octocat": 41, "example-labs": 12}
NEWEST = datetime(2026, 10, 1, 12, tzinfo=UTC)

LANGUAGES = ["C", "Python", "Rust", "Go", "Shell", None]
QUALITIES = ["tiny", "quick", "quiet", "lazy", "solid", "plain", "curious"]
THINGS = ["kernel", "parser", "editor", "cache", "logbook", "gateway", "planner", "compiler"]
VERBS = ["Fix", "Simplify", "Document", "Speed up", "Test", "Rework"]
PARTS = [
    "the retry after a timeout",
    "what an empty file means",
    "the order of entries",
    "long names",
    "the first start",
]
SENTENCES = [
    "It was called twice when the first attempt had timed out, and the second call saw what the first had half done.",
    "Nobody has used the old way since the last release, so that it can go.",
    "Measured with 10,000 entries, this takes a third of the time that it took before.",
    "The order was that of a hash table, which differs from one run to the next.",
    "No functional change is intended.",
]


@dataclass(frozen=True)
class Person:
    """An author of commits, who may have no account."""

    name: str
    email: str
    login: str | None


@dataclass(frozen=True)
class Commit:
    """A commit as the history of its repository has it."""

    sha: str
    message: str
    author: Person
    date: str
    path: str


@dataclass(frozen=True)
class Repository:
    """A repository with its history, newest commit first."""

    owner: str
    name: str
    description: str
    language: str | None
    topics: tuple[str, ...]
    stars: int
    forks: int
    open_issues: int
    created_at: str
    commits: tuple[Commit, ...]

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"


GUESTS = [Person("Ada Example", "ada@example.org", "ada-example"), Person("Bo Sample", "bo@example.org", None)]


def pick(key: str, below: int) -> int:
    """A number below `below` that depends on nothing but the key."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()) % below


@cache
def repositories(owner: str) -> tuple[Repository, ...]:
    """All repositories of a user."""
    first = pick(owner, len(QUALITIES) * len(THINGS))
    return tuple(make_repository(owner, first + number, number) for number in range(USERS[owner]))


def make_repository(owner: str, words: int, number: int) -> Repository:
    quality, thing = QUALITIES[words % len(QUALITIES)], THINGS[words % len(THINGS)]
    famous = owner == "torvalds" and number == 3  # not the first, so that sorting matters
    name = "linux" if famous else f"{quality}-{thing}"
    key = f"{owner}/{name}"
    commits = make_commits(owner, name)
    return Repository(
        owner=owner,
        name=name,
        description="An operating system's kernel" if famous else f"A {quality} {thing} & what belongs to it",
        language="C" if famous else LANGUAGES[pick(f"{key} language", len(LANGUAGES))],
        topics=("kernel", "operating-system") if famous else (thing,),
        # The last digits keep them apart.
        stars=pick(f"{key} stars", 900) * 100 + number + (100_000 if famous else 0),
        forks=pick(f"{key} forks", 300) * 100 + number,
        open_issues=pick(f"{key} issues", 200),
        created_at=text_of(datetime.fromisoformat(commits[-1].date) - timedelta(days=1)),
        commits=commits,
    )


def make_commits(owner: str, name: str) -> tuple[Commit, ...]:
    key = f"{owner}/{name}"
    people = [Person(owner.replace("-", " ").title(), f"{owner}@example.org", owner), *GUESTS]
    date = NEWEST - timedelta(hours=pick(key, 2000))
    commits: list[Commit] = []
    for number in range(pick(f"{key} commits", 60) + 12):
        commit = f"{key} {number}"
        author = people[pick(f"{commit} author", len(people))]
        thing = THINGS[pick(f"{commit} thing", len(THINGS))]
        verb, part = VERBS[pick(f"{commit} verb", len(VERBS))], PARTS[pick(f"{commit} part", len(PARTS))]
        why = SENTENCES[pick(f"{commit} why", len(SENTENCES))]
        commits.append(
            Commit(
                sha=hashlib.sha1(commit.encode(), usedforsecurity=False).hexdigest(),
                message=f"{thing}: {verb} {part}\n\n{why}\n\nSigned-off-by: {author.name} <{author.email}>",
                author=author,
                date=text_of(date),
                path=f"src/{thing}.c",
            )
        )
        date -= timedelta(minutes=1 + pick(f"{commit} time", 6000))
    return tuple(commits)


def text_of(date: datetime) -> str:
    return date.strftime("%Y-%m-%dT%H:%M:%SZ")


# --- the tools


class ToolError(Exception):
    """What the caller of a tool is told instead of a result."""


def search_repositories(arguments: Arguments) -> Any:
    found = matches(required(arguments, "query"))
    keys: dict[str, Callable[[Repository], Any]] = {
        "stars": lambda repository: repository.stars,
        "forks": lambda repository: repository.forks,
        "help-wanted-issues": lambda repository: repository.open_issues,
        "updated": lambda repository: repository.commits[0].date,
    }
    if sort := arguments.get("sort"):
        found.sort(key=keys[one_of("sort", sort, keys)], reverse=arguments.get("order") != "asc")
    shape = minimal if arguments.get("minimal_output", True) else full
    items = [shape(repository) for repository in page(found, arguments)]
    return {"total_count": len(found), "incomplete_results": False, "items": items}


def list_commits(arguments: Arguments) -> Any:
    repository = find(required(arguments, "owner"), required(arguments, "repo"))
    commits = [*repository.commits]
    if (start := arguments.get("sha") or "main") != "main":
        shas = [commit.sha for commit in commits]
        if start not in shas:
            raise ToolError(f"404 Not Found: {repository.full_name} has no branch, tag or commit {start}")
        commits = commits[shas.index(start) :]
    if author := arguments.get("author"):
        commits = [commit for commit in commits if author in (commit.author.login, commit.author.email)]
    if path := arguments.get("path"):
        commits = [commit for commit in commits if f"{commit.path}/".startswith(f"{path.rstrip('/')}/")]
    # As text, dates have the order of time; a day alone is before all of its hours.
    if since := arguments.get("since"):
        commits = [commit for commit in commits if commit.date >= since]
    if until := arguments.get("until"):
        commits = [commit for commit in commits if commit.date <= until]
    described = [describe(repository, commit) for commit in page(commits, arguments)]
    if fields := arguments.get("fields"):
        described = [{name: commit[name] for name in fields if name in commit} for commit in described]
    return described


def create_issue(arguments: Arguments) -> Any:
    repository = find(required(arguments, "owner"), required(arguments, "repo"))
    required(arguments, "title")
    number = repository.open_issues + 1
    return {"id": str(number), "url": f"https://github.com/{repository.full_name}/issues/{number}"}


WORKING: dict[str, Callable[[Arguments], Any]] = {
    "search_repositories": search_repositories,
    "list_commits": list_commits,
}


def required(arguments: Arguments, name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise ToolError(f"{name} is required: give it as a string")
    return value


def one_of(name: str, value: str, choices: dict[str, Any]) -> str:
    if value not in choices:
        raise ToolError(f"{name} is {value!r}, but has to be one of {', '.join(choices)}")
    return value


def page(items: list[T], arguments: Arguments) -> list[T]:
    number, size = int(arguments.get("page", 1)), int(arguments.get("perPage", 30))
    if number < 1 or not 1 <= size <= 100:
        raise ToolError("page has to be 1 or more, and perPage between 1 and 100")
    return items[(number - 1) * size : number * size]


def find(owner: str, name: str) -> Repository:
    if owner.lower() in USERS:
        for repository in repositories(owner.lower()):
            if repository.name == name.lower():
                return repository
    raise ToolError(f"404 Not Found: there is no repository {owner}/{name}")


def matches(query: str) -> list[Repository]:
    owners = [*USERS]
    tests: list[Callable[[Repository], bool]] = []
    for word in query.split():
        qualifier, colon, value = word.partition(":")
        match qualifier if colon else None:
            case "user" | "org":
                if value.lower() not in USERS:
                    raise ToolError(f"422 Validation Failed: there is no user {value}, or you may not see it")
                owners = [value.lower()]
            case "language":
                tests.append(lambda repository, value=value: (repository.language or "").lower() == value.lower())
            case "topic":
                tests.append(lambda repository, value=value: value in repository.topics)
            case "stars":
                tests.append(star_test(value))
            case "in" | "fork" | "archived":
                pass  # nothing is a fork or archived, and words are looked for everywhere
            case None:
                tests.append(
                    lambda repository, word=word: word.lower() in f"{repository.name} {repository.description}".lower()
                )
            case _:
                raise ToolError(f"422 Validation Failed: there is no qualifier {qualifier}")
    found = (repository for owner in owners for repository in repositories(owner))
    return [repository for repository in found if all(test(repository) for test in tests)]


def star_test(value: str) -> Callable[[Repository], bool]:
    parsed = re.fullmatch(r"(>=|>|<=|<|)(\d+)", value)
    if parsed is None:
        raise ToolError(f"422 Validation Failed: {value} is no number of stars")
    bound = int(parsed[2])
    tests: dict[str, Callable[[Repository], bool]] = {
        ">=": lambda repository: repository.stars >= bound,
        ">": lambda repository: repository.stars > bound,
        "<=": lambda repository: repository.stars <= bound,
        "<": lambda repository: repository.stars < bound,
        "": lambda repository: repository.stars == bound,
    }
    return tests[parsed[1]]


def minimal(repository: Repository) -> dict[str, Any]:
    described = {
        "id": pick(repository.full_name, 10**9),
        "name": repository.name,
        "full_name": repository.full_name,
        "description": repository.description,
        "html_url": f"https://github.com/{repository.full_name}",
        "language": repository.language,
        "stargazers_count": repository.stars,
        "forks_count": repository.forks,
        "open_issues_count": repository.open_issues,
        "updated_at": repository.commits[0].date,
        "created_at": repository.created_at,
        "topics": repository.topics,
        "private": False,
        "fork": False,
        "archived": False,
        "default_branch": "main",
    }
    # What the real server doesn't know it leaves out.
    return {name: value for name, value in described.items() if value is not None}


def full(repository: Repository) -> dict[str, Any]:
    return {
        **minimal(repository),
        "owner": {**account(repository.owner), "type": "User"},
        "url": f"https://api.github.com/repos/{repository.full_name}",
        "clone_url": f"https://github.com/{repository.full_name}.git",
        "watchers_count": repository.stars,
        "has_issues": True,
        "visibility": "public",
    }


def describe(repository: Repository, commit: Commit) -> dict[str, Any]:
    signature = {"name": commit.author.name, "email": commit.author.email, "date": commit.date}
    login = commit.author.login
    accounts = {"author": account(login), "committer": account(login)} if login else {}
    return {
        "sha": commit.sha,
        "html_url": f"https://github.com/{repository.full_name}/commit/{commit.sha}",
        "commit": {"message": commit.message, "author": signature, "committer": signature},
        **accounts,
    }


def account(login: str) -> dict[str, Any]:
    number = pick(login, 10**8)
    return {
        "login": login,
        "id": number,
        "profile_url": f"https://github.com/{login}",
        "avatar_url": f"https://avatars.githubusercontent.com/u/{number}?v=4",
    }


# --- the server


def listed(file: Path | None, count: int | None) -> list[types.Tool]:
    """The tools that a server with these options lists."""
    if file is None:
        tools = [SEARCH_REPOSITORIES, LIST_COMMITS]
    else:
        tools = [types.Tool.model_validate(tool) for tool in json.loads(file.read_bytes())]
    if count is None:
        return tools
    tools.sort(key=lambda tool: tool.name not in WORKING)  # stable
    rounds = -(-count // len(tools))
    named = (
        (tool, tool.name if turn == 1 else f"{tool.name}_{turn}") for turn in range(1, rounds + 1) for tool in tools
    )
    return [tool.model_copy(update={"name": name}) for tool, name in named][:count]


def make_server(tools: list[types.Tool]) -> Server[Any]:
    """An MCP server that lists these tools."""

    async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            working = {**WORKING, CREATE_ISSUE.name: create_issue}
            if params.name not in working:
                raise ToolError(f"{params.name} does nothing here: this server only does {' and '.join(WORKING)}")
            result = working[params.name](params.arguments or {})
        except ToolError as exc:
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(exc))], is_error=True)
        text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server("github-stand-in", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve_http(server: Server[Any], token: str | None) -> None:
    import uvicorn

    app = server.streamable_http_app(streamable_http_path=PATH)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # It listens already: whoever reads this may connect, and waits until uvicorn accepts.
        print(f"http://127.0.0.1:{listener.getsockname()[1]}{PATH}", flush=True)
        config = uvicorn.Config(guarded(app, token), log_level="warning", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


def guarded(app: ASGIApp, token: str | None) -> ASGIApp:
    """The application for those who know the token, 401 for others; without a token, the application itself."""
    if token is None:
        return app
    expected = f"Bearer {token}".encode()

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", [])).get(b"authorization", b"")
        if scope["type"] != "http" or hmac.compare_digest(given, expected):
            await app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"a valid bearer token is required"})

    return guard


def main() -> None:
    parser = argparse.ArgumentParser(description="A stand-in of GitHub's MCP server.")
    parser.add_argument("--http", action="store_true", help="serve Streamable HTTP on loopback, and print the URL")
    parser.add_argument("--token", default=os.environ.get(TOKEN_VARIABLE), help="the bearer that --http asks for")
    parser.add_argument("--tools", type=Path, metavar="FILE", help="list the tools of this JSON file")
    parser.add_argument("--count", type=int, metavar="N", help="list this many tools")
    options = parser.parse_args()
    server = make_server(listed(options.tools, options.count))
    if options.http:
        serve_http(server, options.token)
    else:
        asyncio.run(serve_stdio(server))


if __name__ == "__main__":
    main()
