"""What a terminal shows of a text in the end, as progress bars count on."""

import re

#: Characters of a line in which backspaces move the cursor; in longer ones they are only left out.
MAX_LINE = 1 << 20

_MOVES = re.compile("(\b+|\r)")


def drawn(text: str) -> str:
    """Returns the text as it stands in the end: after a carriage return or backspace, new characters cover old ones."""
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
    # From the last part on, of which all is seen; of an earlier one, what is longer.
    for part in reversed(line.split("\r")):
        if len(part) > length:
            shown.append(part[length:])
            length = len(part)
    return "".join(shown)
