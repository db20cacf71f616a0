"""The options of ipybox that are settings of the Claude Code plugins, and how the plugins' configuration shows them."""

from collections.abc import Iterator
from dataclasses import dataclass

from ipybox.cli.option import Option
from ipybox.cli.option_table import OPTIONS


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


#: The settings, by the parameters that their options set.
SETTINGS = {
    "audit": PluginSetting(
        "Audit log",
        "What .ipybox/audit.jsonl records about cells and tool calls: full records code and arguments, with secrets "
        "removed; hash records only hashes of them; off records nothing",
    ),
    "approve": PluginSetting(
        "Approval of tool calls",
        "auto runs every tool call, ask asks you about each one, and a file name applies the rules in that file. A "
        "file in the workspace, such as ipybox.yaml, can only deny calls until you trust it with `ipybox trust`",
    ),
    "sandbox_profile": PluginSetting(
        "Sandbox profile",
        "default, or workspace to hide your home directory as well. A sandbox-config.json in the workspace "
        "replaces parts of the profile once you trust the file with `ipybox trust`",
        ("sandbox",),
    ),
    "allowed_domains": PluginSetting(
        "Allowed domains",
        "Hosts that code may reach, separated by commas, such as example.org,*.example.com",
        ("sandbox",),
    ),
    "memory_limit": PluginSetting("Memory limit", "Memory that code may use, such as 4G, or 0 for no limit"),
    "preload": PluginSetting(
        "Preloaded modules", "Modules to import into every kernel, separated by commas, such as pandas,sympy"
    ),
    "resources": PluginSetting(
        "Resources",
        "Let Claude page through long outputs as MCP resources instead of reading their files. The tools for resources "
        "take up context",
    ),
    "engine": PluginSetting(
        "Engine",
        "Where code runs: the name of an engine in your engines.yaml, such as slurm; empty for this machine",
        ("plain", "sandbox"),
    ),
    "image": PluginSetting("Image", "Name of the Docker image, if it isn't ipybox", ("docker",)),
    "network": PluginSetting(
        "Network", "Name of a Docker network, or none to cut the container off from the network", ("docker",)
    ),
}


def settings(mode: str) -> Iterator[tuple[Option, PluginSetting]]:
    """Yields the options that the plugin of this mode has as settings, in the order of the command line."""
    for option in OPTIONS:
        setting = SETTINGS.get(option.parameter)
        if setting is not None and mode in setting.modes:
            yield option, setting
