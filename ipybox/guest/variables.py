"""Sets and reads the user's variables, and sets environment variables for one cell (`ipybox.guest.protocol`).

The kernel imports this module on the first request that needs it.
"""

import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from ipybox.guest.process import do_nothing
from ipybox.guest.protocol import ENCODING, VARIABLE_ERROR
from ipybox.guest.tracebacks import error_content
from ipybox.support.errors import VariableError
from ipybox.support.variables import EncodedVariable, decode, encode


def set_variables(shell: Any, entries: Sequence[dict[str, str]], buffers: Sequence[Any]) -> None:
    """Sets variables, all or none; raises a VariableError if one can't be set."""
    encoded = (
        EncodedVariable(entry["name"], entry["encoding"], bytes(data))
        for entry, data in zip(entries, buffers, strict=True)
    )
    shell.push({variable.name: decode(variable) for variable in encoded})


def read_reply(shell: Any, name: str) -> tuple[dict[str, Any], list[bytes]]:
    """Returns the content and buffers of the reply to a request to read a variable."""
    try:
        if name not in shell.user_ns:
            raise VariableError(f"the kernel has no variable {name}")
        variable = encode(name, shell.user_ns[name])
    except VariableError as error:
        return error_content(error) | {VARIABLE_ERROR: True}, []
    return {"status": "ok", ENCODING: variable.encoding}, [variable.data]


@contextmanager
def environment(variables: dict[str, str]) -> Generator[None]:
    """Sets environment variables, and restores them at the end, even if code has changed them."""
    environ = os.environ  # code may replace it
    read_zone = time.tzset if "TZ" in variables else do_nothing  # the C library rereads it only on request
    before = {name: environ.get(name) for name in variables}

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                environ.pop(name, None)
            else:
                environ[name] = value
        read_zone()

    try:  # an interrupt may arrive anywhere, even during the first restoration
        try:
            environ.update(variables)
            read_zone()
            yield
        finally:
            restore()
    finally:
        restore()
