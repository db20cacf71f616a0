"""The file of a policy: adds a rule, and keeps all comments and formatting of the others."""

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ipybox.support.errors import PolicyError
from ipybox.support.safe_directory import open_directory, open_untrusted
from ipybox.tool_exec.approval.rules import ApprovalRule

REMEMBERED = "# remembered from an answer"


class PolicyFile:
    """A file that is read once, and written only while no other program changes it.

    Args:
        path: Its path, without links.
        max_size: Maximum bytes to read.
        in_place: Whether it must stay the same file. A sandbox that keeps code from writing it has mounted this file,
            and a new file in its place would be writable.

    Raises:
        PolicyError: If it can't be read.
    """

    def __init__(self, path: Path, max_size: int, *, in_place: bool):
        self.path = path
        self._max_size = max_size
        self._in_place = in_place
        self.text = self._read()

    def write(self, text: str) -> None:
        """Writes a longer text.

        Raises:
            PolicyError: If the file has changed.
            OSError: If it can't be written.
        """
        if self._read() != self.text:
            raise PolicyError(f"{self.path} has changed since ipybox read it")
        if self._in_place:
            # It only grows, in one write; a partly written rule lacks its effect, which is an error.
            with open(os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW), "wb", buffering=0) as file:
                file.write(text.encode())
        else:
            self._replace(text.encode())
        self.text = text

    def _replace(self, data: bytes) -> None:
        name, mode = self.path.name, stat.S_IMODE(self.path.stat().st_mode)
        with open_directory(self.path.parent, create=False) as directory, directory.scratch(name) as scratch:
            scratch.write_new(name, data)
            os.chmod(name, mode, dir_fd=scratch.fd)
            scratch.rename(name, directory, name)

    def _read(self) -> str:
        try:
            with open_untrusted(self.path) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise PolicyError(f"the policy {self.path} is not a regular file")
                return file.read(self._max_size + 1).decode()
        except FileNotFoundError:
            raise PolicyError(f"policy file {self.path} not found: create it, or use 'auto' or 'ask'") from None
        except OSError as exc:
            raise PolicyError(f"can't read the policy {self.path}: {exc.strerror}") from exc
        except UnicodeDecodeError as exc:
            raise PolicyError(f"the policy {self.path} is not UTF-8") from exc


def insert(text: str, rules: Sequence[ApprovalRule], place: int, written: Mapping[str, Any]) -> str:
    """Returns the text of a policy with one more rule, and otherwise unchanged.

    Args:
        text: The current text of the policy.
        rules: Its rules.
        place: The index of the rule before which the new one goes, or the number of rules.
        written: The content of the new rule; its effect last.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = _indent(text, rules[0].start) if rules else "  "
    keys = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in written.items()]
    first, *others = keys
    lines = [f"{indent}- {first}  {REMEMBERED}", *(f"{indent}  {each}" for each in others), ""]
    if not rules:
        start = len(text)
        lines.insert(0, "rules:")
    else:
        start = rules[-1].end if place == len(rules) else _above_comments(text, rules[place].start)
    before = text[:start]
    if before and not before.endswith("\n"):
        before += newline
    return before + newline.join(lines) + text[start:]


def _indent(text: str, start: int) -> str:
    return text[start : text.index("-", start)]


def _above_comments(text: str, start: int) -> int:
    """Returns the beginning of the lines of comments that stand directly above a line, or of that line."""
    while start > 0:
        above = text.rfind("\n", 0, start - 1) + 1
        if not text[above:start].lstrip().startswith("#"):
            break
        start = above
    return start
