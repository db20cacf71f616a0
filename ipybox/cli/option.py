"""What an option of the command line is. `option_table` contains the options, `option_use` applies them.

The standard library suffices to import it, because a plugin reads its command line before anything is installed.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from pathlib import Path
from typing import Any, cast


class Command(Flag):
    """The commands that have an option."""

    SERVE = auto()
    DOCKER = auto()
    BOTH = SERVE | DOCKER


class Receiver(Enum):
    """What an option configures directly; other options are for the command line itself."""

    EXECUTOR = auto()
    SERVER = auto()


@dataclass(frozen=True)
class PluginSetting:
    """How users of a Claude Code plugin set an option.

    Attributes:
        title: Its title in the plugin's configuration.
        description: What it does.
        modes: The plugins that have it.
    """

    title: str
    description: str
    modes: tuple[str, ...] = ("plain", "sandbox", "docker")


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option.

    Attributes:
        name: Its name in the parsed command line; `cpu_seconds` is `--cpu-seconds`.
        help: What it does, for `--help` and the reference.
        commands: The commands that have it.
        docker_help: Its help in `ipybox docker`, if it differs.
        receiver: What it configures directly, if anything: `ExecutorConfig` or `MCPServer`.
        parameter: The name of its parameter there, and in the plugins; by default its own.
        group: The title of its group in `ipybox --help`; empty for none.
        of_sandbox: Whether it is of no use without --sandbox.
        passed_on: Whether `ipybox docker` passes it on unchanged to the ipybox in the container.
        plugin: How the Claude Code plugins set it, if they do.
        short: A short form, such as `-e`.
        one_of: Options with the same text here can't be given together.
        syntax: More arguments of `ArgumentParser.add_argument`.
    """

    name: str
    help: str
    commands: Command = Command.BOTH
    docker_help: str = ""
    receiver: Receiver | None = None
    parameter: str = ""
    group: str = ""
    of_sandbox: bool = False
    passed_on: bool = False
    plugin: PluginSetting | None = None
    short: str = ""
    one_of: str = ""
    syntax: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def flag(self) -> str:
        """Its long form, such as `--cpu-seconds`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def parameter_name(self) -> str:
        """The name of its parameter in `ExecutorConfig`, `MCPServer` and the plugins."""
        return self.parameter or self.name

    def arguments(self, value: Any) -> list[str]:
        """Returns the arguments of a command line that give it a parsed value."""
        if value is self.syntax.get("const", True):
            return [self.flag]
        if value is None or value is False or value == []:
            return []
        text = ",".join(cast("list[str]", value)) if isinstance(value, list) else value
        return [f"{self.flag}={text}"]


def absolute_path(text: str) -> Path:
    """Returns the path of a file that the server reads in another directory than the current one."""
    return Path(os.path.abspath(Path(text).expanduser()))
