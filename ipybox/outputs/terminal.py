"""What a terminal shows of a text in the end, as progress bars count on."""


def drawn(text: str) -> str:
    """Returns the text as it stands after its carriage returns: what a line has later covers what it had before."""
    if "\r" not in text:
        return text
    return "\n".join(_line(line) if "\r" in line else line for line in text.split("\n"))


def _line(line: str) -> str:
    shown, length = list[str](), 0
    # From the last part on, of which all is seen; of an earlier one, what is longer.
    for part in reversed(line.split("\r")):
        if len(part) > length:
            shown.append(part[length:])
            length = len(part)
    return "".join(shown)
