"""How functions end, each in a fork of this process. A child interpreter runs a copy of this file."""

import errno
import json
import os
import signal
import sys
from collections.abc import Callable


def print_outcomes(functions: list[Callable[[], None]]) -> None:
    """Prints, by name of the function: "done", the name of an errno, of a signal, or an exception with its text."""
    json.dump({function.__name__: outcome(function) for function in functions}, sys.stdout)


def outcome(function: Callable[[], None]) -> str:
    """Returns how a function ends in a fork of this process, which inherits what this process gave up."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        signal.alarm(50)
        try:
            function()
            result = "done"
        except OSError as error:
            result = errno.errorcode[error.errno or 0]
        except BaseException as error:  # whatever it is, it must be reported
            result = f"{type(error).__name__}: {error}{getattr(error, 'stderr', '')}"
        os.write(write, result.encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        result = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else result
