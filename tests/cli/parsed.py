"""How the command line reads arguments, without running a command."""

from collections.abc import Sequence
from typing import Any

import click

from ipybox.cli.command import ipybox
from ipybox.cli.parsing import with_command


def parsed(arguments: Sequence[str]) -> dict[str, Any]:
    """Returns the options that are given, by their names.

    Raises:
        click.UsageError: If the command line is wrong.
    """
    name, *rest = with_command(arguments)
    with ipybox.make_context("ipybox", [name]) as context:
        command = ipybox.get_command(context, name)
        if command is None:
            raise click.NoSuchCommand(name, possibilities=ipybox.commands)
        with command.make_context(name, rest, parent=context) as inner:
            return {name: value for name, value in inner.params.items() if value not in (None, ())}
