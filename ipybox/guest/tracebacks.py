"""Formats a cell's error, whatever the exception: code can make its text and its traceback fail."""

import errno
import linecache
import sysconfig
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from traceback import clear_frames, format_exception, walk_tb
from types import FrameType, TracebackType
from typing import Any

import ipykernel
import IPython

from ipybox.support.names import STATE_DIR

PACKAGE_DIR = str(Path(__file__).resolve().parents[1])

#: Frames of these files lead to the user's code.
KERNEL_DIRS = (PACKAGE_DIR, *IPython.__path__, *ipykernel.__path__)

#: Code below these directories, or directories of these names, is not the user's.
LIBRARY_DIRS = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
LIBRARY_NAMES = {"site-packages", "dist-packages", STATE_DIR}

#: How many frames at the start and end of a traceback are shown, and how many exceptions of a chain.
MAX_FRAMES = 50
MAX_CHAIN = 20

#: Maximum characters of an exception's text. A reply of up to 256 MiB has it twice, at up to 12 bytes each.
MAX_TEXT = 1 << 19

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def text_of(error: BaseException) -> str:
    """Returns the text of an exception, or Python's own note that getting it failed."""
    try:
        return str(error)
    except BaseException:  # whatever `__str__` raises, even SystemExit
        return "<exception str() failed>"


def bounded(text: str) -> str:
    """Returns an exception's text, without its middle if it is too long for a message."""
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[: MAX_TEXT // 2]}\n[{len(text) - MAX_TEXT:,} characters not shown]\n{text[-MAX_TEXT // 2 :]}"


def user_traceback(error: BaseException) -> list[str]:
    """Returns the lines that Python prints for an exception, from the user's first frame on, or at least its name."""
    shorten(error)
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(KERNEL_DIRS):
        traceback = traceback.tb_next
    try:
        return "".join(format_exception(None, error, traceback)).splitlines()
    except BaseException:
        return [f"{type(error).__name__}: {text_of(error)}"]


def error_content(error: BaseException) -> dict[str, Any]:
    """Returns a reply's content for an error that IPython has not shown."""
    name = str(type(error).__name__)  # which a metaclass may define
    # Where an interrupt hits outside of the code says nothing about the code.
    lines = [name] if isinstance(error, KeyboardInterrupt) else user_traceback(error)
    return {
        "status": "error",
        "ename": name,
        "evalue": bounded(text_of(error)),
        "traceback": list(map(bounded, lines)),
    }


def has_group(error: BaseException) -> bool:
    """Returns whether an exception, or one of its causes, is a group of exceptions."""
    return any(isinstance(link, BaseExceptionGroup) for link in _chain(error))


def cut_at_ipybox(traceback: TracebackType | None) -> None:
    """Cuts a traceback after the last frame of the user's own code that leads into ipybox."""
    while traceback is not None:
        following = traceback.tb_next
        if following is not None and _is_ours(following):
            traceback.tb_next = None
            return
        traceback = following


def shorten(error: BaseException) -> None:
    """Shortens tracebacks of deep recursions and chains of exceptions that are too long to format.

    IPython looks at each frame, and Python recurses for each exception in a chain.
    """
    with suppress(Exception):  # the exception may not permit changes
        for number, link in enumerate(_chain(error)):
            if number == MAX_CHAIN and (link.__cause__ or link.__context__) is not None:
                link.__cause__ = link.__context__ = None
                link.add_note("[earlier exceptions in the chain are not shown]")
            _shorten_traceback(link.__traceback__)


def _shorten_traceback(first: TracebackType | None) -> None:
    middle: TracebackType | None = None
    last, length = first, 0
    kept = deque[TracebackType](maxlen=MAX_FRAMES)
    while last is not None:
        length += 1
        if length == MAX_FRAMES:
            middle = last
        kept.append(last)
        last = last.tb_next
    if middle is not None and length > 2 * MAX_FRAMES:
        middle.tb_next = kept[0]


def clear_exhausted_frames(error: BaseException) -> None:
    """Clears the variables of functions that failed because descriptors or memory ran out.

    Otherwise `sys.last_traceback` would keep them until the next error.
    """
    if any(isinstance(link, MemoryError) or getattr(link, "errno", None) in NO_DESCRIPTORS for link in _chain(error)):
        for link in _chain(error):
            clear_frames(link.__traceback__)
            for frame, _ in walk_tb(link.__traceback__):
                # Before Python 3.13, this is a copy that the frame keeps; reading it again drops the cleared variables.
                _ = frame.f_locals


def count_source_lines(frame: FrameType) -> int:
    """Returns the number of lines of a frame's source, even if the source is a cell, which is in no file.

    IPython finds no lines for cells and treats them as sources of more than 10,000 lines. For those, its fast
    formatting shows wrong lines for comprehensions, and the line that a frame has reached since.

    https://github.com/ipython/ipython/blob/9.18.1/IPython/core/ultratb.py#L910
    """
    return len(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


def is_library(file: str) -> bool:
    """Returns whether a module's file is a library's."""
    return file.startswith(LIBRARY_DIRS) or not LIBRARY_NAMES.isdisjoint(file.split("/"))


def library_line(frame: FrameType, line: int) -> str | None:
    """Returns the line for a frame of a library, or of code without a source; None for all other frames."""
    file = frame.f_code.co_filename
    if is_library(file) or not count_source_lines(frame):
        return f"File {file}:{line}, in {frame.f_code.co_qualname}"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_ours(traceback: TracebackType) -> bool:
    frame = traceback.tb_frame
    if frame.f_code.co_filename.startswith(PACKAGE_DIR):
        return True
    # In a generated tool module, only the call of its client matters to a reader. `import *` also copies the client's
    # name into a cell.
    client = None if frame.f_globals.get("__name__") == "__main__" else frame.f_globals.get("CLIENT")
    return type(client).__module__ == "ipybox.guest.tools.client"
