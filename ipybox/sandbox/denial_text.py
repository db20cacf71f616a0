"""Formats texts from a sandbox as parts of a message about a denial."""

from collections.abc import Iterable

from ipybox.support.printable import printable


def enumeration(items: Iterable[str]) -> str:
    """Returns at most five of the items on one line, or `none`."""
    some = [shortened(item) for item in items]
    return ", ".join([*some[:5], *(["…"] if len(some) > 5 else [])]) or "none"


def shortened(text: str) -> str:
    """Returns any text from the sandbox on one line, with a bounded length."""
    text = printable(text)
    return text if len(text) <= 300 else f"{text[:300]}…"
