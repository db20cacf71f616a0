"""A fault for each rule, and what is said about it."""

from dataclasses import dataclass

from tests.codeact.conftest import API, COMMITS

INIT_FILE, API_FILE, IMPL_FILE = (f"{COMMITS}/{name}.py" for name in ("__init__", "api", "impl"))
COUNT = "gentools/labels/count"


@dataclass(frozen=True)
class Case:
    """A fault, and what is said about it.

    Attributes:
        path: The file that is spoiled.
        old: What is replaced in it; if empty, `new` is written to the end of the file, which may be new.
        message: A part of what is said to be wrong.
        remedy: A part of what is said to be done.
        line: What the line that is named contains; by default the first line.
        where: The file that is named; by default the spoiled one.
    """

    path: str
    old: str
    new: str
    message: str
    remedy: str
    line: str | None = None
    where: str | None = None


BODY = "    from . import impl\n\n    return impl.run(username, top_n_repos, last_n_commits)\n"
DOC = '"""The latest commits of a user\'s repositories with most stars.\n'
RUN = "def run(username: str, top_n_repos: int = 3, last_n_commits: int = 5) -> list[Repo]:"
IMPL_RUN = "def run(username: str, top_n_repos: int, last_n_commits: int) -> list[Repo]:"

INTERFACES = {
    "no run": Case(
        API_FILE, "def run(", "def _run(", "cannot import name 'run'", "fix this line", "from .api", where=INIT_FILE
    ),
    "run is no function": Case(API_FILE, "", "\n\nrun = 5\n", "function `run` not found", "define `def run(…) -> …:`"),
    "untyped parameter": Case(
        API_FILE,
        "username: str",
        "username",
        "parameter `username` of `run` has no type",
        "`username: str`",
        "def run(",
    ),
    "untyped result": Case(
        API_FILE, " -> list[Repo]", "", "`run` does not say what it returns", "annotate its result", "def run("
    ),
    "no docstring": Case(
        API_FILE,
        API[API.index(DOC) - 4 : API.index(BODY)],
        "",
        "`run` has no docstring",
        "add a docstring",
        "def run(",
    ),
    "bare dict": Case(
        API_FILE, "list[Repo]:", "dict:", "the return type contains `dict`", "pydantic model", "def run("
    ),
    "object within": Case(
        API_FILE, "list[Repo]:", '"list[object]":', "`object`", "return a pydantic model", "def run("
    ),
    "bare list within": Case(API_FILE, "[Repo]:", "[Repo | list]:", "`list`", "return a pydantic model", "def run("),
    "eager implementation": Case(
        API_FILE,
        "class Commit",
        "from . import impl as i\n\n\nclass Commit",
        "cannot import name 'Commit' from partially initialized module",
        "fix this line",
        "import Commit",
        where=IMPL_FILE,
    ),
    "tools imported": Case(
        API_FILE,
        "class Commit",
        "from mcptools.github import list_commits\n\n\nclass Commit",
        "importing the interface imports `mcptools.github.list_commits`",
        "import tools in impl.py",
    ),
    "another's implementation": Case(
        API_FILE,
        "class Commit",
        "from gentools.labels.count.impl import run as r\n\n\nclass Commit",
        "importing the interface imports `gentools.labels.count.impl`",
        "impl in the body of `run` only",
    ),
    "syntax error": Case(API_FILE, "class Repo(", "class Repo((", "is not valid Python", "fix", "class Repo(("),
}

IMPLEMENTATIONS = {
    "no run in impl": Case(IMPL_FILE, "def run(", "def go(", "function `run` not found", "in api.py"),
    "other names": Case(
        IMPL_FILE, "username: str,", "user: str,", "`def run(user: str", "same parameters and types", "def run("
    ),
    "other kinds": Case(
        IMPL_FILE,
        ", last_n_commits: int",
        ", *, last_n_commits: int",
        "in api.py",
        "same parameters",
        "def run(",
    ),
    "other type": Case(
        IMPL_FILE,
        "top_n_repos: int",
        "top_n_repos: float",
        "top_n_repos: float",
        "types, without defaults",
        "def run(",
    ),
    "other result": Case(IMPL_FILE, "-> list[Repo]", "-> Repo", "api.Repo` is", "types, without defaults", "def run("),
    "sync and async": Case(IMPL_FILE, IMPL_RUN, f"async {IMPL_RUN}", "`async def run(", "same parameters", "def run("),
    "model not imported": Case(
        IMPL_FILE,
        "import Commit, Repo",
        "import Commit",
        "NameError: name 'Repo' is not defined",
        "fix this line",
        "def run(",
    ),
}

PACKAGES = {
    "run not exported": Case(INIT_FILE, ", run\n", "\n", "does not export `run`", "`from .api import run`"),
    "implementation exported": Case(
        INIT_FILE,
        "",
        "\nfrom .impl import _repo\n",
        "importing the interface imports `gentools.github.commits_of_top_repos.impl`",
        "impl in the body of `run` only",
        where=API_FILE,
    ),
}

IMPORTS = {
    "name that is not defined": Case(
        IMPL_FILE, "", "\nUSED = undefined\n", "NameError: name 'undefined'", "fix this line", "USED ="
    ),
    "text that is no Python": Case(
        IMPL_FILE, "", '\ncompile("1 +", __file__, "exec")\n', "SyntaxError: invalid syntax", "fix this line"
    ),
    "error without a text": Case(
        IMPL_FILE,
        "",
        "\n\nclass Mute(Exception):\n    def __str__(self):\n        raise OSError\n\n\nraise Mute\n",
        "impl.py failed: Mute:",
        "fix this line",
        "raise Mute",
    ),
    "call of a tool": Case(
        IMPL_FILE,
        "",
        "\nsearch_repositories.run_parsed(search_repositories.Params(query='x'))\n",
        "impl.py failed: ToolRunnerError",
        "fix this line",
        "search_repositories.run_parsed(search_repositories.Params(query='x'))",
    ),
    "exit": Case(IMPL_FILE, "", "\nraise SystemExit(3)\n", "SystemExit: 3", "fix this line", "raise SystemExit"),
    "tool that is not there": Case(
        IMPL_FILE,
        "import list_commits, ",
        "import gone, ",
        "cannot import name 'gone'",
        "fix this line",
        "import gone",
    ),
    "error in what is used": Case(
        "mcptools/github/list_commits.py",
        "class Params",
        "1 / 0\n\n\nclass Params",
        "importing gentools/github/commits_of_top_repos/impl.py failed: ZeroDivisionError",
        "fix this line",
        "1 / 0",
    ),
    "unresolved annotation": Case(
        f"{COUNT}/api.py", "from collections.abc import Mapping\n", "", "NameError: name 'Mapping'", "fix this line"
    ),
    "other types of the same names": Case(
        f"{COUNT}/impl.py",
        "Mapping\n",
        "Mapping\nfrom builtins import float as int\n",
        "(labels: collections.abc.Mapping[str, float]",
        "import types from .api",
        "async def run(",
    ),
    "implementation by detour": Case(
        API_FILE,
        "class Commit",
        'name = __import__("importlib").import_module(".impl", __package__)\n\n\nclass Commit',
        "cannot import name 'Commit'",
        "fix this line",
        "import Commit",
        where=IMPL_FILE,
    ),
    "implementation after all": Case(
        API_FILE,
        BODY,
        f'{BODY}\n\nname = __import__("importlib").import_module(".impl", __package__)\n',
        "importing the interface imports",
        "in the body of `run` only",
    ),
}
