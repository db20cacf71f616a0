"""How the texts of options become their values. Like `option`, it needs only the standard library."""

import argparse
import math
import re
from pathlib import Path

from ipybox.kernel_mgr.limits.resource_limits import MIN_MEMORY
from ipybox.mcp_server.choices import Approval
from ipybox.support.sizes import format_bytes, parse_bytes


def approval(text: str) -> Approval:
    """Returns the value of --approve."""
    return text if text in ("auto", "ask") else Path(text)


def memory_size(text: str) -> int:
    """Returns the bytes of --memory-limit; 0 for no limit."""
    try:
        memory = parse_bytes(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None
    if 0 < memory < MIN_MEMORY:
        raise argparse.ArgumentTypeError(f"{text} is too low: a kernel needs {format_bytes(MIN_MEMORY)} at least")
    return memory


def seconds(text: str) -> float:
    """Returns a positive number of seconds."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return number


def items(text: str) -> list[str]:
    """Returns the items of a list with commas."""
    return [item.strip() for item in text.split(",") if item.strip()]


def variable(text: str) -> str:
    """Returns the name of a variable."""
    # The value would be on a command line, which all users of the machine can read.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        name = text.partition("=")[0]
        raise argparse.ArgumentTypeError(f"give the name of a variable, whose value stays in the environment: {name!r}")
    return text
