"""Resets the blocked and ignored signals that a process inherits, and sends signals to process groups.

A shell's background jobs ignore SIGINT, supervisors block signals to wait for them, and daemons ignore SIGCHLD. An
interrupt would then not end a cell, and the exit status of a child would be lost.
"""

import os
import signal
from contextlib import suppress

#: `nohup` ignores the first. Python ignores the others, but restores their defaults in programs that it starts.
KEPT = {signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ}


def reset_signals() -> None:
    """Unblocks all signals and ignores none, as in a program that a person starts; for the main thread of a process."""
    for number in signal.valid_signals() - KEPT:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def signal_group(leader: int, number: signal.Signals) -> None:
    """Sends a signal to the process group of a leader; ignores a group that has ended, or runs as another user."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
