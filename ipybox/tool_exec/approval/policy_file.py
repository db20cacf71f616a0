"""The file of a policy: how a rule gets into it, with all that people have written around the others."""

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ipybox.beneath import open_directory
from ipybox.errors import PolicyError
from ipybox.tool_exec.approval.rules import Rule

REMEMBERED = "# remembered from an answer"


class PolicyFile:
    """A file that was read once, and is written as long as nobody else does.

    Args:
        path: Without links.
        max_size: Bytes that are read.
        in_place: Whether it has to stay the same file. A sandbox that keeps code from writing it has mounted that one,
            and what takes its place would be open.

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
            PolicyError: If the file is not what it was.
            OSError: If it can't be written.
        """
        if self._read() != self.text:
            raise PolicyError(f"{self.path} has changed since it was read")
        if self._in_place:
            # It only grows, and at once; of a rule that is there in part the effect is missing, which is an error.
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
            # Without O_NONBLOCK, opening a pipe would wait for a writer.
            with open(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise PolicyError(f"the policy {self.path} is not a file")
                return file.read(self._max_size + 1).decode()
        except FileNotFoundError:
            raise PolicyError(f"there is no policy {self.path}: write it, or choose 'auto' or 'ask'") from None
        except OSError as exc:
            raise PolicyError(f"the policy {self.path} can't be read: {exc.strerror}") from exc
        except UnicodeDecodeError as exc:
            raise PolicyError(f"the policy {self.path} is not UTF-8") from exc


def insert(text: str, rules: Sequence[Rule], place: int, written: Mapping[str, Any]) -> str:
    """Returns the text of a policy with one more rule, and otherwise as it was.

    Args:
        text: What the policy has now.
        rules: Its rules.
        place: Before which of them the new one goes, or their number.
        written: What it says; its effect last.
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
