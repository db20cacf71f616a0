"""Applies the options of `option_table`: adds them to parsers, and reads what a parsed command line contains of them.

Like `option`, it needs only the standard library.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from ipybox.cli.option import Command, Option, Receiver
from ipybox.cli.option_table import GROUPS, OPTIONS


def options_of(command: Command) -> Iterator[Option]:
    """Yields the options of a command."""
    return (option for option in OPTIONS if command in option.commands)


def add_options(parser: argparse.ArgumentParser, command: Command) -> None:
    """Adds the options of a command to its parser: in groups for `ipybox`, in one list for `ipybox docker`.

    The parser of `ipybox docker` sets no defaults, because it may be part of the other parser.
    """
    docker = command is Command.DOCKER
    places: dict[str, argparse._ActionsContainer] = {"": parser}  # pyright: ignore[reportPrivateUsage] a parser or a group
    for option in options_of(command):
        group = "" if docker else option.group
        if group not in places:
            places[group] = parser.add_argument_group(group, GROUPS[group])
        if option.one_of and option.one_of not in places:
            places[option.one_of] = places[group].add_mutually_exclusive_group()
        syntax = {name: value for name, value in option.syntax.items() if not docker or name != "default"}
        names = [option.short, option.flag] if option.short else [option.flag]
        text = (docker and option.docker_help) or option.help
        places[option.one_of or group].add_argument(*names, help=text, **syntax)


def given_parameters(arguments: argparse.Namespace, receiver: Receiver) -> dict[str, Any]:
    """Returns the parameters for `ExecutorConfig` or `MCPServer` that a command line gives, by their names there."""
    values = ((option, getattr(arguments, option.name, None)) for option in OPTIONS if option.receiver is receiver)
    return {option.parameter_name: value for option, value in values if value is not None}


def needless_sandbox_options(arguments: argparse.Namespace) -> str | None:
    """Returns an error message if a command line sets up a sandbox that it does not ask for; None otherwise."""
    given = vars(arguments)
    needless = [option.flag for option in OPTIONS if option.of_sandbox and given.get(option.name)]
    if not needless or given.get("sandbox"):
        return None
    return f"{needless[0]} is an option of the sandbox, which is off: add --sandbox"
