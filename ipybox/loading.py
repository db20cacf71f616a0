"""Imports that are large: what they make stays, and looking for garbage among it takes a fifth of their time."""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def loading() -> Generator[None]:
    """No garbage is collected in this context, in all threads; what there is at its end counts as old."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():
                # This way to the oldest generation looks at nothing. The young ones are looked at soon and often.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
