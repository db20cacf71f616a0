"""Secret keys of this user, which the host makes once and code in a kernel can't read in the sandbox."""

import os
import secrets
from functools import cache
from pathlib import Path

from ipybox.private_file import create_private
from ipybox.state import make_directory

KEY_BYTES = 32


@cache
def lasting_key(path: Path) -> bytes:
    """Returns the key in a file, which is made with a new one, mode 0600, if it is not there.

    Raises:
        ValueError: If the file holds something else.
        OSError: If it can't be read or made.
    """
    make_directory(path.parent)
    new = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    with create_private(new, "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
    try:
        os.link(new, path)  # atomic, and keeps the key of whoever was first
    except FileExistsError:
        pass
    finally:
        new.unlink()
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        void = "what was made with it is void then, as are the seals of registered servers with seal.key"
        raise ValueError(f"{path} does not hold a key of {KEY_BYTES} bytes: remove it; {void}")
    return key
