"""What an option of `ipybox serve` is. `option_table` lists them, `parsing` makes a command line of them.

An option that sets a parameter of `ExecutorConfig` or `MCPServer` takes its type and its default from there. Both are
looked up only when they are needed, because that imports the class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import click

from ipybox.cli.option_values import NAMES, SECONDS, Kind


class Receiver(Enum):
    """The class or method whose parameter an option sets. Other options are for the command line itself."""

    EXECUTOR = "ipybox.code_exec.config", "ExecutorConfig"
    SERVER = "ipybox.mcp_server.server", "MCPServer"
    HTTP = "ipybox.mcp_server.server", "MCPServer.run_http"

    @cache
    def parameters(self) -> Mapping[str, Parameter]:
        """Returns the parameters, for which the module is imported."""
        module, name = self.value
        return signature(attrgetter(name)(import_module(module))).parameters


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


@dataclass(frozen=True)
class Option:
    """An option.

    Attributes:
        name: Its name in a parsed command line; `cpu_seconds` is `--cpu-seconds`.
        help: What it does, for `--help` and the reference.
        receiver: What it configures directly, if anything.
        type: The kind of its values, where it does not follow from the type of the parameter; bool for a flag.
        default: Its default as text, where it is not that of the parameter.
        commands: The commands that have it; by default those of its group.
        parameter: The name of its parameter there and in the plugins, by default its own.
        plugin: How the Claude Code plugins set it, if they do.
        short: A short form, such as `-e`.
        hidden: Whether only other programs use it, so that `--help` does not show it.
        group: The title of its group, which the table sets.
    """

    name: str
    help: str
    receiver: Receiver | None = None
    type: Any = None
    _: KW_ONLY
    default: str = ""
    commands: str = ""
    parameter: str = ""
    plugin: PluginSetting | None = None
    short: str = ""
    hidden: bool = False
    group: str = ""

    @property
    def flag(self) -> str:
        """Its long form, such as `--cpu-seconds`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def parameter_default(self) -> Any:
        """The default of its parameter; None without one."""
        return None if self.receiver is None else self.receiver.parameters()[self.parameter].default

    @property
    def kind(self) -> Kind | None:
        """The kind of its values; None for a flag."""
        if self.type is None:
            assert self.receiver is not None, f"{self.flag} needs a type"
            return _kind_of(self.receiver.parameters()[self.parameter].annotation)
        return None if self.type is bool else self.type

    @property
    def text(self) -> str:
        """What it does, and its default."""
        default = self.default or self.parameter_default
        if default in (None, ()) or isinstance(default, bool):
            return self.help
        return f"{self.help} (default: {f'{default:g}' if isinstance(default, float) else default})"


def choice(*values: str, name: str = "") -> Kind:
    """Returns the kind of values that are one of these."""
    return Kind(name or "|".join(values), click.Choice(values))


def _kind_of(annotation: Any) -> Kind:
    """Returns the kind of values of a type, or of its first part that is not None."""
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    if get_origin(annotation) is Literal:
        return choice(*get_args(annotation))
    if get_origin(annotation) is Sequence:
        return NAMES
    return {int: Kind("N", click.IntRange(max=10**9)), float: SECONDS}[annotation]
