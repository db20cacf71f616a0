"""Secret keys of this user, for seals and keyed hashes. They are created once; code in the sandbox can't read them."""

import os
import secrets
from functools import cache
from pathlib import Path

from ipybox.support.private_file import create_private
from ipybox.support.state import make_directory

KEY_BYTES = 32


@cache
def load_or_create_key(path: Path) -> bytes:
    """Returns the key in a file; creates the file, with mode 0600 and a new key, if it does not exist.

    Raises:
        ValueError: If the file does not contain a key.
        OSError: If it can't be read or created.
    """
    make_directory(path.parent)
    new = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with create_private(new, "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
    try:
        os.link(new, path)  # atomic, and keeps the key of the process that was first
    except FileExistsError:
        pass
    finally:
        new.unlink()
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        void = "this invalidates everything made with it, such as registered servers for seal.key"
        raise ValueError(f"{path} does not contain a {KEY_BYTES}-byte key: remove it; {void}")
    return key
