"""What the error of a cell says, whatever the exception is like: code can make its text and its traceback fail."""

import errno
import linecache
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from traceback import clear_frames, format_exception, walk_tb
from types import FrameType, TracebackType
from typing import Any

import ipykernel
import IPython

from ipybox.workspace.names import STATE_DIR

PACKAGE_DIR = str(Path(__file__).resolve().parents[1])

#: Frames of these lead to the user's code.
KERNEL_DIRS = (PACKAGE_DIR, *IPython.__path__, *ipykernel.__path__)

#: What is below these directories, or directories of these names, is no code of the user.
LIBRARY_DIRS = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
LIBRARY_NAMES = {"site-packages", "dist-packages", STATE_DIR}

NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def name_of(error: BaseException) -> str:
    """Returns the name of an exception's class."""
    return str(type(error).__name__)


def text_of(error: BaseException) -> str:
    """Returns the text of an exception, or Python's own note that it can't be had."""
    try:
        return str(error)
    except BaseException:  # whatever `__str__` raises, also to leave the kernel
        return "<exception str() failed>"


def user_traceback(error: BaseException) -> list[str]:
    """Returns the lines that Python prints for an exception, from the user's first frame on, or at least its name."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(KERNEL_DIRS):
        traceback = traceback.tb_next
    try:
        return "".join(format_exception(None, error, traceback)).splitlines()
    except BaseException:
        return [f"{name_of(error)}: {text_of(error)}"]


def error_content(error: BaseException) -> dict[str, Any]:
    """Returns what a reply says of an error that IPython has not shown."""
    # Where an interrupt has come outside of the code says nothing about the code.
    lines = [name_of(error)] if isinstance(error, KeyboardInterrupt) else user_traceback(error)
    return {"status": "error", "ename": name_of(error), "evalue": text_of(error), "traceback": lines}


def has_group(error: BaseException) -> bool:
    """Tells whether an exception, or one that it comes from, is a group of exceptions."""
    return any(isinstance(link, BaseExceptionGroup) for link in _chain(error))


def cut_at_ipybox(traceback: TracebackType | None) -> None:
    """Cuts a traceback after the last frame of the user's own code that leads into ipybox."""
    while traceback is not None:
        following = traceback.tb_next
        if following is not None and _is_ours(following):
            traceback.tb_next = None
            return
        traceback = following


def release_what_ran_out(error: BaseException) -> None:
    """Clears the variables of the functions that have failed for want of descriptors or memory.

    They stay in `sys.last_traceback` until the next error, with the files or the memory that they hold, which nothing
    else refers to: code could not close them.
    """
    if any(isinstance(link, MemoryError) or getattr(link, "errno", None) in NO_DESCRIPTORS for link in _chain(error)):
        for link in _chain(error):
            clear_frames(link.__traceback__)
            for frame, _ in walk_tb(link.__traceback__):
                # Before Python 3.13 it is a copy that is made when it is read, as the traceback was, and then kept.
                _ = frame.f_locals


def count_source_lines(frame: FrameType) -> int:
    """Returns how many lines the source of a frame has, also if the source is a cell, which is in no file.

    IPython counts the lines of the file. For cells it finds none, takes them for sources of more than 10,000 lines and
    shows them in its fast way, which has the wrong lines for comprehensions, and the line that a frame has come to
    since. https://github.com/ipython/ipython/blob/9.18.1/IPython/core/ultratb.py#L910
    """
    return len(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


def library_line(frame: FrameType, line: int) -> str | None:
    """Returns the line that stands for a frame of a library, or of what has no source; None for all other frames."""
    file = frame.f_code.co_filename
    if file.startswith(LIBRARY_DIRS) or not LIBRARY_NAMES.isdisjoint(file.split("/")) or not count_source_lines(frame):
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
    # A generated tool module holds nothing worth a reader's time but the call of its client.
    client = frame.f_globals.get("CLIENT")
    return type(client).__module__ == "ipybox.tool_exec.client"
