"""Reads Python files of a workspace as syntax trees: within limits, without importing, and without blocking.

Code can plant anything in the workspace: pipes instead of files, links that lead outside or form loops, endless files,
source that is nested too deeply for the parser. All of these raise `UnreadableError`.
"""

import ast
import os
import re
import stat
import warnings
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from ipybox.support.untrusted_paths import real_path

#: Maximum bytes of a file. The largest module ever generated has 17,000.
MAX_FILE = 256 * 1024
#: Maximum bytes of all files read for one query: a second or two of parsing. A token counts as at least six bytes,
#: because a syntax tree needs a few hundred for each.
MAX_TOTAL = 8 * 1024 * 1024
TOKEN_BYTES = 6
#: Maximum directory entries listed for one query.
MAX_ENTRIES = 10_000

_TOKEN = re.compile(rb"[\w\x80-\xff]+|[^\w\s\x80-\xff]|\n")
#: A comment and the space before it.
_COMMENT = re.compile(rb"\s*#(.*)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def binding(tree: ast.Module, name: str) -> ast.stmt | None:
    """Returns the first top-level statement that defines a function with this name, or assigns to the name."""
    for each in tree.body:
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names = [each.name]
            case ast.Assign():
                names = [target.id for target in each.targets if isinstance(target, ast.Name)]
            case _:
                names = []
        if name in names:
            return each
    return None


class UnreadableError(Exception):
    """A file or directory of the workspace can't be read or parsed; the attributes say where and why."""

    def __init__(self, path: str, reason: str, line: int = 1):
        super().__init__(f"{path}:{line}: {reason}")
        self.path = path
        self.reason = reason
        self.line = line


@dataclass(frozen=True)
class SourceModule:
    """A parsed Python file. The path is relative to the workspace, with slashes."""

    path: str
    text: str
    tree: ast.Module

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines with line ends, as UTF-8, because columns in a syntax tree count bytes."""
        return self.text.encode().splitlines(keepends=True)

    def between(self, start: tuple[int, int], end: tuple[int, int]) -> str:
        """Returns the source between two positions, each a line and a column."""
        (first, left), (last, right) = start, end
        if first == last:
            return self.lines[first - 1][left:right].decode()
        middle = self.lines[first : last - 1]
        return b"".join([self.lines[first - 1][left:], *middle, self.lines[last - 1][:right]]).decode()

    def source_of(self, node: ast.expr | ast.stmt) -> str:
        """Returns the source of a node, as written."""
        end = (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return self.between((node.lineno, node.col_offset), end)

    def comment_after(self, node: ast.stmt) -> str:
        """Returns the comment after a statement, without the `#`; empty if there is none."""
        line, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        found = _COMMENT.match(self.lines[line - 1], column)  # without copying a line for each of its statements
        return found[1].decode().strip() if found else ""

    def function(self, name: str) -> Function | None:
        """Returns the last top-level function with this name."""
        return next(
            (each for each in reversed(self.tree.body) if isinstance(each, Function) and each.name == name), None
        )

    def classes(self) -> dict[str, ast.ClassDef]:
        """Returns the top-level classes by name."""
        return {each.name: each for each in self.tree.body if isinstance(each, ast.ClassDef)}


@dataclass(frozen=True, slots=True, order=True)
class DirectoryEntry:
    """An entry of a directory; for a link, its target counts."""

    name: str
    is_dir: bool


class SourceReader:
    """Reads files and directories below a root, for one query: up to `MAX_TOTAL` bytes and `MAX_ENTRIES` names.

    Paths are relative to the root, with slashes. Raises a NotADirectoryError if the root doesn't exist.
    """

    def __init__(self, root: Path | str):
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir():
            raise NotADirectoryError(f"{self.root} is not a directory: pass the workspace as `workspace=`")
        self._bytes_left = MAX_TOTAL
        self._entries_left = MAX_ENTRIES

    def entries(self, path: str) -> list[DirectoryEntry]:
        """Returns a directory's sorted entries, without hidden files; empty if it doesn't exist."""
        try:
            with os.scandir(self._place(path)) as found:
                entries = [DirectoryEntry(each.name, _is_dir(each)) for each in islice(found, self._entries_left + 1)]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise UnreadableError(path, f"can't be listed ({exc.strerror})") from exc
        if len(entries) > self._entries_left:
            raise UnreadableError(path, f"is omitted: there are more than {MAX_ENTRIES:,} files")
        self._entries_left -= len(entries)
        return sorted(each for each in entries if not each.name.startswith((".", "__pycache__")))

    def module(self, path: str) -> SourceModule:
        """Returns a parsed Python file. Raises a FileNotFoundError, or an UnreadableError."""
        text = self.text(path)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escape sequences in string literals
                return SourceModule(path, text, ast.parse(text))
        except SyntaxError as exc:
            raise UnreadableError(path, f"is not valid Python ({exc.msg})", exc.lineno or 1) from exc
        except (ValueError, RecursionError, MemoryError) as exc:
            raise UnreadableError(path, "is nested too deeply for Python's parser, or is not text") from exc

    def text(self, path: str) -> str:
        """Returns a file's text. Raises an UnreadableError unless it is a small regular UTF-8 file in the workspace."""
        data = self._read(path)
        self._bytes_left -= max(len(data), TOKEN_BYTES * len(_TOKEN.findall(data)))
        if self._bytes_left < 0:
            raise UnreadableError(path, f"is omitted: the files before it exceed {MAX_TOTAL:,} bytes of code")
        try:
            # Like Python, accept any line ends, and a byte order mark.
            return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as exc:
            raise UnreadableError(path, "is not UTF-8", data.count(b"\n", 0, exc.start) + 1) from exc

    def _read(self, path: str) -> bytes:
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer.
            fd = os.open(self._place(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise UnreadableError(path, f"can't be opened ({exc.strerror})") from exc
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UnreadableError(path, "is not a regular file")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(MAX_FILE + 1)
        finally:
            os.close(fd)
        if len(data) > MAX_FILE:
            raise UnreadableError(path, f"is larger than {MAX_FILE:,} bytes")
        return data

    def _place(self, path: str) -> Path:
        place = self.root / path
        real = real_path(place)
        if real != str(place) and not Path(real).is_relative_to(self.root):
            raise UnreadableError(path, "is a link out of the workspace")
        return place


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False
