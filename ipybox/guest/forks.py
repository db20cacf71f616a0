"""How a child ends that code forked off the kernel with `os.fork()`: at the end of the code, like a program.

Otherwise it would return into the event loop of the kernel, and run a second one.
"""

import os
import sys
from typing import NoReturn

#: The exit status of an interrupted program, as shells report it.
INTERRUPTED = 130


def end_child(error: BaseException | None) -> NoReturn:
    """Ends this process with the exit status that Python would use; Python has printed the error already.

    A child of `multiprocessing` runs no handlers of `atexit`, because they are the parent's.
    """
    status = status_of(error)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # code may have replaced it
            continue
    os._exit(status)


def status_of(error: BaseException | None) -> int:
    """Returns the exit status of a program that ends with this error; a text as the status is printed, as by Python."""
    match error:
        case None:
            return 0
        case KeyboardInterrupt():
            return INTERRUPTED
        case SystemExit(code=None):
            return 0
        case SystemExit(code=int(code)):
            return code & 0xFF
        case SystemExit(code=code):
            try:
                print(code, file=sys.stderr)
            except BaseException:
                return 1
            return 1
        case _:
            return 1
