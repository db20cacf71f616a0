"""The layout of generated and saved code in a workspace, and access to it.

mcptools/<server>/<tool>.py    generated from a server's tool; `ParseResult` and `run_parsed` are appended if the
                               tool has an output parser
mcpparse/<server>/<tool>.py    the output parser
gentools/<category>/<tool>/    a saved code action: `__init__.py`, `api.py` and `impl.py`
"""

import keyword
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ipybox.codeact.source import DirectoryEntry, Function, SourceModule, SourceReader, UnreadableError
from ipybox.support.names import MCPTOOLS

GENTOOLS = "gentools"
MCPPARSE = "mcpparse"

#: Functions in a tool's module that return the parsed output.
RUN_PARSED = ("run_parsed", "run_parsed_async")


@dataclass(frozen=True, slots=True)
class Name:
    """The category (or server) and name of a tool."""

    category: str
    tool: str

    def __str__(self) -> str:
        return f"{self.category}.{self.tool}"

    def path(self, root: str) -> str:
        """Returns the path without suffix: of a saved code action's directory, or of a module."""
        return f"{root}/{self.category}/{self.tool}"

    def module(self, root: str) -> str:
        """Returns the module name to import."""
        return f"{root}.{self}"


class Library:
    """Reads the code in a workspace, and records errors in `unreadable`."""

    def __init__(self, workspace: Path | str):
        self.workspace = SourceReader(workspace)
        #: The errors by path.
        self.unreadable: dict[str, UnreadableError] = {}
        self._read: dict[str, SourceModule | None] = {}

    def gentools(self) -> Iterator[Name]:
        """Yields the saved code actions with importable names."""
        for category in self._categories(GENTOOLS):
            for entry in self.entries(f"{GENTOOLS}/{category}"):
                # A removed package may leave a directory that contains only bytecode.
                if entry.is_dir and is_name(entry.name) and self.entries(f"{GENTOOLS}/{category}/{entry.name}"):
                    yield Name(category, entry.name)

    def mcp_tools(self) -> Iterator[tuple[Name, SourceModule]]:
        """Yields the MCP servers' tools that have readable modules."""
        for name in self._modules(MCPTOOLS):
            if module := self.module(f"{name.path(MCPTOOLS)}.py"):
                yield name, module

    def parsers(self) -> Iterator[Name]:
        """Yields the tools with a parser in `mcpparse`."""
        return self._modules(MCPPARSE)

    def module(self, path: str) -> SourceModule | None:
        """Returns the parsed module in a file; None if the file is missing or unreadable."""
        if path not in self._read:
            self._read[path] = self._parsed(path)
        return self._read[path]

    def entries(self, path: str) -> list[DirectoryEntry]:
        """Returns the entries of a directory; empty if it is missing or unreadable."""
        try:
            return self.workspace.entries(path)
        except UnreadableError as exc:
            self.unreadable.setdefault(path, exc)
            return []

    def _parsed(self, path: str) -> SourceModule | None:
        try:
            return self.workspace.module(path)
        except FileNotFoundError:
            return None
        except UnreadableError as exc:
            self.unreadable[path] = exc
            return None

    def _categories(self, root: str) -> list[str]:
        return [entry.name for entry in self.entries(root) if entry.is_dir and is_name(entry.name)]

    def _modules(self, root: str) -> Iterator[Name]:
        for category in self._categories(root):
            for entry in self.entries(f"{root}/{category}"):
                tool = entry.name.removesuffix(".py")
                if tool != entry.name and tool != "__init__" and is_name(tool):
                    yield Name(category, tool)


def is_name(name: str) -> bool:
    """Returns whether a module with this name can be imported."""
    return name.isidentifier() and not keyword.iskeyword(name)


def run_parsed(module: SourceModule) -> Function | None:
    """Returns the function of a tool's module that returns a parsed result, or None."""
    return next((found for name in RUN_PARSED if (found := module.function(name))), None)
