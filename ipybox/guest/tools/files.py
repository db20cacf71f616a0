"""Files with data that tools returned, in `toolfiles/` of the kernel's working directory, which git ignores.

They are named by their tool and numbered: `get_chart-001.svg`. Other threads and kernels may write there at the same
time. If the directory is a link, which code or a cloned repository may bring, it is not followed.
"""

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from mimetypes import MimeTypes
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from ipybox.support.safe_directory import open_directory

FILES_DIR = Path("toolfiles")

#: Characters of a tool's name in a file's name.
STEM_LENGTH = 64

# The next number to try, by stem: only a hint, because another process may have used it.
_numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(1))


def save(data: bytes, tool_name: str, suffix: str) -> Path:
    """Writes a new file in `FILES_DIR` or, if that fails, a temporary one, and returns its path.

    Raises:
        OSError: If neither can be written.
    """
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", tool_name)[:STEM_LENGTH].lstrip("-") or "tool"
    try:
        return FILES_DIR / _write_numbered(stem, suffix, data)
    except OSError:
        # Code may have changed into a directory that it can't write. The call may be one that can't be repeated.
        path = Path(tempfile.mkdtemp(prefix="toolfiles-")) / f"{stem}{suffix}"
        path.write_bytes(data)
        return path


def suffix_of(mime_type: str, uri: str = "") -> str:
    """Returns the suffix of a file of that type, with its dot. The URI is its origin, if that is known."""
    # Without the machine's own tables, so that the result is the same everywhere.
    known = MimeTypes().guess_extension(mime_type, strict=False)
    if known not in (None, ".bin"):
        return known
    with suppress(ValueError):
        named = PurePosixPath(urlsplit(uri).path).suffix
        if re.fullmatch(r"\.[A-Za-z0-9]{1,10}", named):
            return named
    # Python's table lacks much of sound and video, whose subtypes are suffixes: wav, ogg, flac, webm.
    subtype = mime_type.rpartition("/")[2]
    return f".{subtype}" if re.fullmatch("[a-z0-9]{1,10}", subtype) else ".bin"


def _write_numbered(stem: str, suffix: str, data: bytes) -> str:
    makes = not FILES_DIR.exists()
    with open_directory(FILES_DIR, untrusted_root=Path.cwd()) as directory:
        if makes:
            directory.keep_out_of_git()
        while True:
            name = f"{stem}-{next(_numbers[stem]):03}{suffix}"
            with suppress(FileExistsError):
                directory.write_new(name, data)
                return name
