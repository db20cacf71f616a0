"""`ipybox docker`: some options are Docker's, the others belong to the ipybox in the container.

Standard library only, with all that it imports: a plugin starts the container before anything is installed.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from ipybox.cli.option import Kind
from ipybox.cli.option_table import OPTIONS, options_of, sandbox_mistake
from ipybox.docker.launcher import launch
from ipybox.docker.options import DockerError, Options, container_options
from ipybox.docker.refusal import refuse
from ipybox.support.printable import printable

#: Options of which `container_options` makes something. The ipybox in the container gets all others as they are.
HANDLED = {"workspace", "allowed_dir", "approve", "sandbox", "sandbox_config", "memory_limit"} | {
    option.name for option in OPTIONS if option.group == "Container"
}


def run(given: Mapping[str, Any]) -> NoReturn:
    """Serves from a container in place of this process; on an error, tells the user and the client, and exits."""
    try:
        launch(container(given))
    except DockerError as exc:
        reason = printable(str(exc), lines=True)
        print(f"ipybox: {reason}", file=sys.stderr, flush=True)
        refuse(reason)
        sys.exit(1)


def read_options(arguments: Sequence[str]) -> dict[str, Any]:
    """Returns the options that a program gives as `--name=value`. The ipybox in the container checks what is its own.

    Raises:
        DockerError: If a value is wrong.
    """
    kinds = {option.flag: option.type for option in options_of("docker")}
    given: dict[str, Any] = {}
    for argument in arguments:
        flag, equals, text = argument.partition("=")
        kind = kinds.get(flag)
        try:
            value = kind.value(text) if isinstance(kind, Kind) else text if equals else True
        except ValueError as exc:
            raise DockerError(f"{flag}: {exc}") from exc
        given[flag.removeprefix("--").replace("-", "_")] = value
    return given


def container(given: Mapping[str, Any]) -> Options:
    """Returns how to run the container.

    Raises:
        DockerError: If the options are contradictory or invalid.
    """
    if mistake := sandbox_mistake(given):
        raise DockerError(mistake)
    return container_options(given, [_argument(name, value) for name, value in given.items() if name not in HANDLED])


def _argument(name: str, value: object) -> str:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return flag
    return f"{flag}={','.join(cast('list[str]', value)) if isinstance(value, list) else value}"
