"""`ipybox docker`: checks the options and passes most of them to ipybox in the container."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from ipybox.cli.command import command
from ipybox.cli.option_table import command_options
from ipybox.cli.running import check_options
from ipybox.docker.request import run


@command("docker", options=command_options("docker"))
def docker(_: Path, given: Mapping[str, Any]) -> NoReturn:
    """Replaces this process with a server in a container."""
    check_options(given)
    run(option_arguments(given))


def option_arguments(given: Mapping[str, Any]) -> list[str]:
    """Returns the given options as `--name=value` arguments."""
    arguments: list[str] = []
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        values = cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,))
        arguments += [flag if isinstance(value, bool) else f"{flag}={each}" for each in values]
    return arguments
