"""An audit hook that lets this process do nothing but import generated packages. Hooks can't be removed."""

import os
import site
import sys
import sysconfig
from pathlib import Path
from types import CodeType
from typing import Any

import ipybox

# By the beginnings of their names: whatever runs, kills or reaches something else.
_FORBIDDEN = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile", "os.fork", "os.kill", "os.putenv",
    "os.unsetenv", "os.chdir", "subprocess.", "pty.", "socket.", "urllib.", "http.", "ftplib.", "smtplib.", "poplib.",
    "imaplib.", "webbrowser.", "ctypes.", "pickle.", "marshal.dumps", "code.__new__", "shutil.", "tempfile.",
    "sys.settrace", "sys.setprofile", "sys.addaudithook", "signal.", "builtins.input", "cpython.run_", "mmap.",
)  # fmt: skip
_CHANGES_FILES = (
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.utime", "os.setxattr", "os.removexattr",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LIBRARIES = tuple(
    f"{Path(each).resolve()}{os.sep}"
    for each in (sysconfig.get_path("stdlib"), *site.getsitepackages(), Path(ipybox.__file__).parent)
)
#: What `ast.parse` compiles under; nothing of that name may be executed.
_PARSED = ("<unknown>", None)
_FROZEN = "<frozen "
#: The methods of a validator's class, which come from names in jsonschema.
_OF_VALIDATORS = "<attrs generated "


class Violation(BaseException):
    """Something was done that importing and calling generated code should not do; no `except Exception` hides it."""


class Audit:
    """What is allowed below `root`, and what was done nevertheless.

    Attributes:
        deferred: Annotations that may be evaluated: strings of checked modules.
        violations: All that was refused.
    """

    def __init__(self, root: Path):
        self.deferred: set[str] = set()
        self.violations: list[str] = []
        self._root = f"{root.resolve()}{os.sep}"
        self._armed = False

    def arm(self) -> None:
        """Refuses from now on whatever is not allowed."""
        self._armed = True
        sys.addaudithook(self._on_event)

    def disarm(self) -> None:
        """Allows everything again, for cleaning up."""
        self._armed = False

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._armed and not self._allows(event, arguments):
            self.violations.append(f"{event}{arguments!r}"[:500])
            raise Violation(self.violations[-1])

    def _allows(self, event: str, arguments: tuple[Any, ...]) -> bool:
        match event, arguments:
            case "exec", (CodeType(co_filename=name),):
                return self._is_known(name)
            case "compile", (source, "<string>"):
                # `eval` shows its text as bytes, `compile` shows no syntax tree.
                return (source.decode() if isinstance(source, bytes) else source) in self.deferred
            case "compile", (_, name):
                return name in _PARSED or self._is_known(name)
            case "open", (path, mode, flags):
                writes = (isinstance(mode, str) and set(mode) & set("wax+")) or flags & _WRITING
                return not writes or self._is_below(path)
            case _:
                if event.startswith(_CHANGES_FILES):
                    return self._is_below(arguments[0])
                return not event.startswith(_FORBIDDEN)

    def _is_known(self, name: str) -> bool:
        # Text was compiled before it's evaluated, and so is one of the annotations.
        return name.startswith((self._root, _FROZEN, _OF_VALIDATORS, *_LIBRARIES)) or name == "<string>"

    def _is_below(self, path: str | bytes | os.PathLike[str] | int) -> bool:
        return not isinstance(path, int) and os.path.realpath(os.fsdecode(path)).startswith(self._root)
