"""Imports that are large: what they make stays, and looking for garbage among it takes a fifth of their time."""

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def loading() -> Generator[None]:
    """No garbage is collected in this context, in all threads."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
