"""`ipybox docker`: some options are Docker's, the others belong to the ipybox in the container.

Standard library only, with all that it imports: a plugin starts the container before anything is installed.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ipybox.cli.option import Command
from ipybox.cli.option_table import options_of, sandbox_mistake
from ipybox.cli.option_values import Kind
from ipybox.docker.errors import DockerError
from ipybox.docker.launcher import launch
from ipybox.docker.options import Options
from ipybox.docker.refusal import refuse
from ipybox.docker.request import container_options
from ipybox.support.printable import printable

#: Options of which `container_options` makes something; the ipybox in the container gets all others as they are.
HANDLED = {
    "workspace",
    "allowed_dir",
    "approve",
    "sandbox",
    "sandbox_config",
    "memory_limit",
    "image",
    "network",
    "env",
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
        DockerError: If there is no such option, or a value is wrong.
    """
    known = {option.flag: option for option in options_of(Command.DOCKER)}
    given: dict[str, Any] = {}
    for argument in arguments:
        flag, _, text = argument.partition("=")
        if (option := known.get(flag)) is None:
            raise DockerError(f"{flag} is not an option of `ipybox docker`")
        try:
            given[option.name] = option.type.read(text) if isinstance(option.type, Kind) else text
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
    others = [option for option in options_of(Command.DOCKER) if option.name not in HANDLED]
    return container_options(given, [text for each in others for text in each.arguments(given.get(each.name))])
