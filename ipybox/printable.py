"""Text that others wrote parts of, as it may be shown to people."""

from pathlib import PurePath


def printable(text: str | PurePath, *, lines: bool = False) -> str:
    """Returns the text without what a terminal would obey, an encoding refuse, or would change the order of reading.

    Args:
        text: A text or a path, whatever bytes it has.
        lines: Whether it keeps its line breaks.
    """
    kept = "\n" if lines else ""
    return "".join(each if each.isprintable() or each in kept else "?" for each in str(text))


def escaped(text: str) -> str:
    """Returns the text with escapes, as of JSON, in place of such characters: it can still be read exactly."""
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    data = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{data[start : start + 4]}" for start in range(0, len(data), 4))
