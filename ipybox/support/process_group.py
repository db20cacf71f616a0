"""Sends signals to a process and its children, as one process group."""

import os
import signal
from contextlib import suppress


def signal_group(leader: int, number: signal.Signals) -> None:
    """Sends a signal to the process group of a leader; ignores a group that has ended, or runs as another user."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
