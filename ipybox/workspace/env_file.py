"""A workspace's `.env` file, used only for `${VAR}` placeholders and the kernel's variables.

A cloned repository may contain the file, and code may have written it. So its variables don't enter the host's
environment, which determines the state directory, the browser, proxies and certificates, and can't refer to it. The
syntax is python-dotenv's, but reading takes linear time and bounded memory.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ipybox.support.printable import printable
from ipybox.support.safe_directory import open_directory
from ipybox.support.untrusted_paths import MAX_SETTINGS

logger = logging.getLogger(__name__)

NAME = ".env"

#: `KERNEL_ENV_X` becomes `X` in the kernel.
KERNEL_PREFIX = "KERNEL_ENV_"

#: Prefixes of variables that make a process, Python, IPython or a library load code or configuration.
READ_BEFORE_CELLS = (
    *("LD_", "DYLD_", "GLIBC_", "GCONV_", "LOCPATH", "NLSPATH", "OPENSSL_", "HOME", "XDG_"),
    *("PYTHON", "IPYTHON", "JUPYTER", "JPY", "IPYBOX_", "MPL", "PYDEV", "DEBUGPY"),
)

# Empty lines, an optional binding, and the rest of the line, which invalidates the binding unless it is empty.
# Quantifiers are possessive (`*+`), because backtracking would take quadratic time.
_BLANKS = r"[^\S\r\n]"
_LINE = re.compile(
    rf"""\s*+
    (?:
        (?:export{_BLANKS}++)?+ (?:'([^']++)'|(?!')([^=\#\s]++)) {_BLANKS}*+
        =(?:{_BLANKS}++(?=\#)|{_BLANKS}*+(?:'((?:\\.|[^'\\])*+)'|"((?:\\.|[^"\\])*+)"|(?!['"])([^\r\n]*+)))
        ((?:{_BLANKS}*+\#[^\r\n]*+)?{_BLANKS}*+(?=[\r\n]|\Z))?+
    )?+
    [^\r\n]*+""",
    re.DOTALL | re.VERBOSE,
)
# `${NAME}` or `${NAME:-default}`, without a further `${`: looking for the end of each would take quadratic time.
_REFERENCE = re.compile(r"\$\{((?:[^:}$]|\$(?!\{))*+)(?::-((?:[^}$]|\$(?!\{))*+))?+\}")
_COMMENT = re.compile(r"\s\#")
_SINGLE_QUOTED_ESCAPES = re.compile(r"\\([\\'])")
_DOUBLE_QUOTED_ESCAPES = re.compile(r"""\\([\\'"abfnrtv])""")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class FollowedFile:
    """Values that are read from a file again when it changes; the file may not exist."""

    def __init__(self, path: Path, read: Callable[[], Mapping[str, str]]):
        self._path = path
        self._read = read
        self._status: tuple[int, ...] | None = None
        self._values: Mapping[str, str] = {}

    def read(self) -> Mapping[str, str]:
        """Returns the values, as the same object until the file changes."""
        status = None
        with suppress(OSError):
            found = os.lstat(self._path)
            status = found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
        if status != self._status:
            self._values = self._read()
            self._status = status
        return self._values


def read_env_file(workspace: Path) -> dict[str, str]:
    """Returns the variables in a workspace's `.env` file. `${NAME}` in a value refers to another variable in the file.

    Ignores a file that can't be read, is larger than `MAX_SETTINGS`, or is a link or a pipe, and logs a warning. Also
    ignores values beyond a total size of `MAX_SETTINGS`.
    """
    try:
        with open_directory(workspace, create=False) as directory:
            content = directory.read(NAME, MAX_SETTINGS)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        logger.warning("ignoring %s: %s", workspace / NAME, exc.strerror or exc)
        return {}
    values, omitted = parse_env_file(content)
    if omitted:
        logger.warning(
            "%s: %d values are omitted because together they exceed %d bytes", workspace / NAME, omitted, MAX_SETTINGS
        )
    return values


def parse_env_file(content: bytes) -> tuple[dict[str, str], int]:
    """Returns the variables in a `.env` file, with references to earlier ones expanded, and how many are omitted."""
    expanded: dict[str, str] = {}
    left, omitted = MAX_SETTINGS, 0
    for name, value in _bindings(content.decode(errors="replace").removeprefix("\ufeff")):
        parts = [*_parts(value, expanded)]  # not joined yet, so it takes no more memory than the file
        size = sum(map(len, parts))
        if size > left:
            omitted += 1
        elif "\0" not in value:
            left -= size
            expanded[name] = "".join(parts)
    return expanded, omitted


def _bindings(text: str) -> Iterator[tuple[str, str]]:
    """Yields names and values, skipping lines without a valid binding."""
    for quoted_key, key, single_quoted, double_quoted, unquoted, end in map(re.Match[str].groups, _LINE.finditer(text)):
        if end is None:
            continue
        if single_quoted is not None:
            value = _SINGLE_QUOTED_ESCAPES.sub(r"\1", single_quoted)
        elif double_quoted is not None:
            value = _DOUBLE_QUOTED_ESCAPES.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), double_quoted)
        else:
            value = _COMMENT.split(unquoted or "", maxsplit=1)[0].rstrip()
        yield quoted_key or key, value


def _parts(value: str, known: Mapping[str, str]) -> Iterator[str]:
    """Yields the parts of a value, with `${NAME}` and `${NAME:-default}` expanded."""
    position = 0
    for reference in _REFERENCE.finditer(value):
        yield value[position : reference.start()]
        yield known.get(reference[1], reference[2] or "")
        position = reference.end()
    yield value[position:]


def env_file_placeholders(workspace: Path) -> dict[str, str]:
    """Returns the variables of a workspace's `.env` file that apply to placeholders: the environment comes first."""
    return {name: value for name, value in read_env_file(workspace).items() if name not in os.environ}


def kernel_variables(environment: Mapping[str, str], *, trusted: bool = True) -> dict[str, str]:
    """Returns the kernel's variables: those with the prefix, without the prefix.

    A kernel starts when a client connects, before any cell is approved, and some variables can run code at that point.
    Unless the environment is trusted, these are ignored, with a warning in the log.
    """
    names = [name for name in environment if name.startswith(KERNEL_PREFIX) and name != KERNEL_PREFIX]
    kept = {name.removeprefix(KERNEL_PREFIX): environment[name] for name in names}
    refused = [] if trusted else [name for name in kept if name.upper().startswith(READ_BEFORE_CELLS)]
    for name in refused:
        del kept[name]
        logger.warning(
            "ignoring %s from the workspace's .env, because it could run code before the first cell: set it in "
            "ipybox's own environment",
            printable(f"{KERNEL_PREFIX}{name}"),
        )
    return kept
