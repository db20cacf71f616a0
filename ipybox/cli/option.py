"""What an option of `ipybox serve` is. `option_table` lists them, `parsing` makes a command line of them.

An option that sets a parameter of `ExecutorConfig` or `MCPServer` takes its type and its default from there, when they
are needed. Until then, the standard library suffices, because a plugin reads its options before anything is installed.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum, Flag, auto
from functools import cache
from importlib import import_module
from inspect import Parameter, signature
from operator import attrgetter
from typing import Any, cast

from ipybox.cli.option_values import Kind, kind_of


class Command(Flag):
    """The commands that have an option; RUN stands for those that run a kernel and then end."""

    SERVE = auto()
    DOCKER = auto()
    RUN = auto()


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
        parameter: The name of its parameter there and in the plugins, if it differs.
        type: The type or `Kind` of its values, where it is not the type of the parameter.
        default: Its default as text, where it is not that of the parameter.
        short: A short form, such as `-e`.
        commands: The commands that have it; by default those of its group.
        plugin: How the Claude Code plugins set it, if they do.
        hidden: Whether only other programs use it, so that `--help` does not show it.
        group: The title of its group, which the table sets.
    """

    name: str
    help: str
    receiver: Receiver | None = None
    _: KW_ONLY
    parameter: str = ""
    type: Any = None
    default: str = ""
    short: str = ""
    commands: Command | None = None
    plugin: PluginSetting | None = None
    hidden: bool = False
    group: str = ""

    @property
    def flag(self) -> str:
        """Its long form, such as `--cpu-seconds`."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def parameter_name(self) -> str:
        """The name of its parameter in `ExecutorConfig`, `MCPServer` and the plugins."""
        return self.parameter or self.name

    @property
    def parameter_default(self) -> Any:
        """The default of its parameter; None without one."""
        return None if self.receiver is None else self.receiver.parameters()[self.parameter_name].default

    @property
    def kind(self) -> Kind | None:
        """The kind of its values; None for a flag."""
        if self.type is None:
            assert self.receiver is not None, f"{self.flag} needs a type"
            return kind_of(self.receiver.parameters()[self.parameter_name].annotation)
        return kind_of(self.type)

    @property
    def text(self) -> str:
        """What it does, and its default."""
        default = self.default or self.parameter_default
        if default in (None, ()) or isinstance(default, bool):
            return self.help
        return f"{self.help} (default: {f'{default:g}' if isinstance(default, float) else default})"

    def value(self, text: str) -> Any:
        """Returns the value of a text.

        Raises:
            ValueError: If the text is no value of this option; the message says what is.
        """
        kind = self.kind
        assert kind is not None, "a flag has no text"
        if not text and not kind.repeatable:
            raise ValueError("the value is empty")
        return kind.read(text)

    def arguments(self, value: Any) -> list[str]:
        """Returns the arguments of a command line that give it a value; None is no value."""
        if value is None:
            return []
        if isinstance(value, bool):
            return [self.flag]
        text = ",".join(cast("list[str]", value)) if isinstance(value, list) else value
        return [f"{self.flag}={text}"]
