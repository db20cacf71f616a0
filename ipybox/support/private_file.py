"""Creates and replaces files that only the same user can read, from their first byte on."""

import os
import secrets
from pathlib import Path
from typing import IO, Any, Literal


def create_private(path: Path, mode: Literal["w", "wb"] = "w") -> IO[Any]:
    """Creates a file with mode 0600, and opens it for writing.

    Raises:
        OSError: If it can't be created, or the path exists.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), mode)


def replace_private(path: Path, text: str) -> None:
    """Writes a file with mode 0600 and atomically replaces an existing one: readers see the old or the new content.

    Raises:
        OSError: If it can't be written; an existing file stays.
    """
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
