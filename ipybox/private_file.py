"""Files that only the same user can read, from their first byte on."""

import os
from pathlib import Path
from typing import IO, Any, Literal


def create_private(path: Path, mode: Literal["w", "wb"] = "w") -> IO[Any]:
    """Creates a file with mode 0600, and opens it for writing.

    Raises:
        OSError: If it can't be created, or something is there.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), mode)
