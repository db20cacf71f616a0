"""The text that a terminal finally shows, as progress bars rely on it."""

import re

#: Characters of a line up to which backspaces move the cursor; in longer lines they are only removed.
MAX_LINE = 1 << 20

_MOVES = re.compile("(\b+|\r)")


def drawn(text: str) -> str:
    """Returns the final text: after a carriage return or backspace, new characters overwrite old ones."""
    if "\r" not in text and "\b" not in text:
        return text
    return "\n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    if "\b" in line:
        if len(line) <= MAX_LINE:
            return _line_with_backspaces(line)
        line = line.replace("\b", "")
    return _line_with_returns(line) if "\r" in line else line


def _line_with_backspaces(line: str) -> str:
    shown, cursor = list[str](), 0
    for part in _MOVES.split(line):
        if part.startswith("\b"):
            cursor = max(0, cursor - len(part))
        elif part == "\r":
            cursor = 0
        else:
            shown[cursor : cursor + len(part)] = part
            cursor += len(part)
    return "".join(shown)


def _line_with_returns(line: str) -> str:
    shown, length = list[str](), 0
    # The last part is shown in full; an earlier part only where it is longer.
    for part in reversed(line.split("\r")):
        if len(part) > length:
            shown.append(part[length:])
            length = len(part)
    return "".join(shown)
