"""`ipybox docker`: some options are Docker's, the others belong to the ipybox in the container.

Standard library only, with all that it imports: a plugin starts the container before anything is installed.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from ipybox.cli.option_values import (
    APPROVAL,
    DIRECTORIES,
    DIRECTORY,
    FILE,
    MEMORY,
    NAME,
    VARIABLES,
    sandbox_mistake,
)
from ipybox.docker.errors import DockerError
from ipybox.docker.launcher import launch
from ipybox.docker.options import Options
from ipybox.docker.refusal import refuse
from ipybox.docker.request import container_options
from ipybox.support.printable import printable

#: Options of which `container_options` makes something. The ipybox in the container gets all others as they are.
HANDLED = {
    "workspace": DIRECTORY,
    "allowed_dir": DIRECTORIES,
    "approve": APPROVAL,
    "sandbox": None,
    "sandbox_config": FILE,
    "memory_limit": MEMORY,
    "image": NAME,
    "network": NAME,
    "env": VARIABLES,
}


def run(given: Mapping[str, Any]) -> NoReturn:
    """Serves from a container in place of this process; on an error, reports it to the user and the client, and exits.

    Args:
        given: The options that were given, by their names.
    """
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
    given: dict[str, Any] = {}
    for argument in arguments:
        flag, equals, text = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        kind = HANDLED.get(name)
        try:
            given[name] = kind.value(text) if kind else text if equals else True
        except ValueError as exc:
            raise DockerError(f"{flag}: {exc}") from exc
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
