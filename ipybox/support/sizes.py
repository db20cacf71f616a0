"""Parses and formats numbers of bytes for people, in options and messages."""

import re
from typing import Final

UNITS: Final = {
    **dict.fromkeys(("", "b"), 1),
    **{f"{letter}{suffix}": 1024**power for power, letter in enumerate("kmgt", 1) for suffix in ("", "i", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}


def parse_bytes(text: str) -> int:
    """Returns the number of bytes in a text like `4G`, `512MiB` or `1073741824`.

    K, M, G and T, with or without `i` or `iB`, are powers of 1024; KB, MB, GB and TB are powers of 1000.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text, re.ASCII | re.IGNORECASE)
    unit = None if match is None else UNITS.get(match[2].lower())
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not an amount of memory: use a value such as 4G, 512MiB or 1073741824")
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def format_bytes(count: float) -> str:
    """Returns a number of bytes with a unit, like `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.1f}".removesuffix(".0") + f" {unit}"
        count /= 1024
    return f"{count:.1f}".removesuffix(".0") + " TiB"
