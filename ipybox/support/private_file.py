"""Files that only their owner can read, from the first byte on, including the user's secret keys."""

import os
import secrets
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

from ipybox.support.state import make_directory


def create_private(path: Path, mode: Literal["w", "wb"] = "w") -> IO[Any]:
    """Creates a file with mode 0600, which must not exist, and opens it for writing."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), mode)


def replace_private(path: Path, text: str) -> None:
    """Writes a file with mode 0600 and atomically replaces an existing one, which is kept if that fails.

    Creates its directory, readable only by its owner, if needed.
    """
    make_directory(path.parent)
    new = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    try:
        with create_private(new) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


KEY_BYTES = 32


@cache
def load_or_create_key(path: Path) -> bytes:
    """Returns the key in a file; creates the file, with mode 0600 and a new key, if it does not exist."""
    make_directory(path.parent)
    new = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with create_private(new, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        os.link(new, path)  # atomic, and keeps the key of the process that was first
    except FileExistsError:
        pass
    finally:
        new.unlink(missing_ok=True)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        void = "this invalidates everything made with it, such as registered servers for seal.key"
        raise ValueError(f"{path} does not contain a {KEY_BYTES}-byte key: remove it; {void}")
    return key
