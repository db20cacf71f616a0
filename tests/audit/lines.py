"""What audit logs hold."""

import json
from pathlib import Path
from typing import Any

from ipybox.audit.audit import AuditLog

#: What differs from run to run.
CHANGING = ("time", "session_id", "cell_id", "tool_call_id", "duration")


def lines(file: Path) -> list[dict[str, Any]]:
    """Returns the events of a file, each line of which has to be one."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def log_of(workspace: Path) -> list[dict[str, Any]]:
    """Returns the events of a workspace's log."""
    return lines(workspace / ".ipybox" / "audit.jsonl")


def events(workspace: Path, *names: str) -> list[dict[str, Any]]:
    """Returns the events of these names."""
    return [line for line in log_of(workspace) if line["event"] in names]


def steady(line: dict[str, Any]) -> dict[str, Any]:
    """Returns an event without what differs from run to run."""
    return {name: value for name, value in line.items() if name not in CHANGING}


def digest(value: object) -> str | None:
    """The hash of a value in this user's logs."""
    return AuditLog(Path()).digest(value)
