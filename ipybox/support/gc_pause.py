"""Avoids garbage collection when it frees nothing: in large imports, while a large message is parsed, and at exit.

Except for messages, it affects only ipybox's own processes, never an application that imports ipybox.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager

_own_process = False


def mark_own_process() -> None:
    """Marks this process as ipybox's own, so that `gc_paused` has an effect from now on."""
    global _own_process
    _own_process = True


@contextmanager
def gc_paused(*, own: bool = False) -> Generator[None]:
    """Pauses garbage collection; objects alive at the end move to the oldest generation.

    Without `own`, for a process of ipybox's own, it does nothing before `mark_own_process`.
    """
    enabled = gc.isenabled() and (own or _own_process)
    if enabled:
        gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                # Moves objects to the oldest generation without a scan. Young generations are scanned soon and often.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def skip_collection_at_exit() -> None:
    """Disables garbage collection, because Python would scan all objects at exit, for more than 0.1 s."""
    if _own_process:
        gc.freeze()
        gc.disable()
