"""Sets variables in a kernel before an execution, and decodes variables that the kernel returns.

Imported on first use. `ipybox.guest.variables` is the kernel's half.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

from ipybox.guest.protocol import ENCODING, ENVIRONMENT, INPUTS, VARIABLES
from ipybox.kernel_mgr.messages import Message
from ipybox.support.errors import VariableError
from ipybox.support.inherited import check_environment
from ipybox.support.sizes import format_bytes
from ipybox.support.variables import EncodedVariable, check_name, check_size, decode, encode

#: Maximum bytes of one execution's environment variables, about as much as a program started by code can receive.
MAX_ENVIRONMENT_BYTES = 1 << 20


class Inputs(NamedTuple):
    """What to set before one execution: environment variables, and the fields and buffers of the request."""

    environment: Mapping[str, str]
    fields: dict[str, Any]
    buffers: list[bytes]


def encode_inputs(variables: Mapping[str, Any], environment: Mapping[str, str]) -> Inputs:
    """Returns the inputs of an execution. Encoding can take long.

    Raises:
        TypeError: If an environment variable is not a str.
        ValueError: If a variable name or an environment variable is invalid.
        VariableError: If a value can't be sent.
    """
    for name in variables:
        check_name(name)
    check_environment("env", environment)
    if (size := sum(map(len, chain(environment, environment.values())))) > MAX_ENVIRONMENT_BYTES:
        limit = format_bytes(MAX_ENVIRONMENT_BYTES)
        raise ValueError(f"the environment variables are too large: {format_bytes(size)}; the limit is {limit}")
    encoded = [encode(name, value) for name, value in variables.items()]
    check_size(encoded)
    entries = [{"name": variable.name, "encoding": variable.encoding} for variable in encoded]
    fields = {INPUTS: {VARIABLES: entries, ENVIRONMENT: dict(environment)}}
    return Inputs(environment, fields, [variable.data for variable in encoded])


def value_in(reply: Message, name: str) -> Any:
    """Returns the variable's value from a reply of the kernel, which is not trusted.

    Raises:
        VariableError: If it is not valid, or a library for tables is missing.
    """
    encoding = reply.content.get(ENCODING)
    if not isinstance(encoding, str) or len(reply.buffers) != 1:
        raise VariableError(
            f"the kernel did not return the variable {name}: code may have replaced parts of the kernel"
        )
    (data,) = reply.buffers
    return decode(EncodedVariable(name, encoding, bytes(data)))
