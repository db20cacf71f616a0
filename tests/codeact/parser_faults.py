"""A fault for each rule about output parsers."""

from tests.codeact.conftest import SEARCH, SEARCH_PARSER
from tests.codeact.faults import Case

LAZY = "    from mcpparse.github import search_repositories as parser\n"
DOCUMENTED = '    """The repositories that were found."""\n'


PARSERS = {
    "no tool": Case("mcpparse/github/gone.py", "", "", "tool mcptools/github/gone.py not found", "register the server"),
    "no model": Case(
        SEARCH,
        "class ParseResult(",
        "class Parsed(",
        f"importing {SEARCH} failed: NameError: name 'ParseResult' is not defined",
        "fix this line",
        "def run_parsed",
    ),
    "model removed": Case(
        SEARCH, "", "\n\ndel ParseResult\n", "model `ParseResult` not found", f"append it to {SEARCH}", "class ParseR"
    ),
    "no run_parsed": Case(
        SEARCH,
        "def run_parsed(",
        "def parsed(",
        "function `run_parsed` not found",
        f"append it to {SEARCH}",
        "class ParseR",
    ),
    "untyped": Case(SEARCH, "(params: Params) -> P", "(params) -> P", "has no type", "annotate it", "def run_parsed"),
    "more parameters": Case(
        SEARCH, "Params) -> P", "Params, x: int) -> P", "x: int", "(params: Params)", "def run_parsed"
    ),
    "result of run_parsed": Case(
        SEARCH, ") -> ParseResult", ") -> list[str]", "-> list[str]", "-> ParseResult:`", "def run_parsed"
    ),
    "not documented": Case(SEARCH, DOCUMENTED, "", "`run_parsed` has no docstring", "add", "def run_parsed"),
    "async run_parsed": Case(
        SEARCH,
        "def run_parsed",
        "async def run_parsed",
        "`async def run_parsed",
        "write `def run_parsed",
        "def run_parsed",
    ),
    "parser imported eagerly": Case(
        SEARCH,
        "from pydantic",
        "import mcpparse.github.search_repositories\nfrom pydantic",
        f"importing {SEARCH} failed: ImportError: cannot import name 'ParseResult' from partially initialized module",
        "fix this line",
        "import ParseResult",
        where=SEARCH_PARSER,
    ),
    "parser imported by detour": Case(
        SEARCH,
        "",
        '\n\nparser = __import__("importlib").import_module("mcpparse.github.search_repositories")\n',
        "importing the tool imports its parser",
        "in the body of `run_parsed` only",
        "def run_parsed",
    ),
    "no parse": Case(SEARCH_PARSER, "def parse(", "def read(", "function `parse` not found", "`def parse(result: str)"),
    "type of parse": Case(
        SEARCH_PARSER, "result: str", "result: dict", "(result: dict)", "`def parse(result: str)", "def pa"
    ),
    "type of structured parse": Case(
        "mcpparse/tracker/search_tickets.py",
        "result: Result",
        "result: str",
        "(result: str)",
        "(result: Result)",
        "def",
    ),
    "result of parse": Case(SEARCH_PARSER, "-> ParseResult", "-> dict", "-> dict", "-> ParseResult:`", "def parse"),
    "async parse": Case(SEARCH_PARSER, "def parse", "async def parse", "`async def parse", "`def parse", "def parse"),
    "model defined again": Case(
        SEARCH_PARSER,
        "def parse",
        "class ParseResult:\n    pass\n\n\ndef parse",
        "ParseResult` does not fit the tool",
        "import ParseResult from mcptools.github.search_repositories",
        "def parse",
    ),
    "model not imported by the parser": Case(
        SEARCH_PARSER, "ParseResult, R", "R", "name 'ParseResult' is not defined", "fix this line", "def parse"
    ),
    "other model": Case(
        SEARCH_PARSER,
        "def parse",
        "ParseResult = Repository\n\n\ndef parse",
        ".Repository` does not fit",
        "import ParseResult from",
        "def parse",
    ),
    "no pydantic": Case(
        SEARCH,
        "class ParseResult(BaseModel)",
        "class ParseResult(list[str])",
        "is not a pydantic model",
        "BaseModel",
        "class Parse",
    ),
    "parser fails": Case(SEARCH_PARSER, "", "\n1 / 0\n", "ZeroDivisionError", "fix this line", "1 / 0"),
}
