"""Opens files at paths where untrusted code may have put anything: a link, a pipe, a directory."""

import os
from pathlib import Path
from typing import IO


def open_untrusted(path: Path) -> IO[bytes]:
    """Opens a path for reading, without following a link at its end, and without waiting for the writer of a pipe.

    Raises:
        OSError: If it can't be opened, or is a directory.
    """

    def opener(name: str, _: int) -> int:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)

    # With an opener, the file owns the descriptor from the start: `open(fd)` would leave a directory's descriptor open.
    return open(path, "rb", opener=opener)
