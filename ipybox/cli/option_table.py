"""The options of `ipybox serve`, `ipybox docker` and the commands that run a kernel, each written once.

From this table come the command lines (`parsing`), the values for `ExecutorConfig` and `MCPServer` (`serve`), the
arguments for the ipybox in a container (`docker`), the settings of the Claude Code plugins (`plugins/manifests.py`) and
the reference `docs/options.md` (`docs/option_reference.py`). CONTRIBUTING.md says how to add an option.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import click

from ipybox.cli.option import Option, PluginSetting, Receiver, choice
from ipybox.cli.option_values import APPROVAL, DIRECTORIES, DIRECTORY, FILE, ITEMS, MEMORY, NAME, NAMES, VARIABLES, Kind
from ipybox.sandbox.settings import PROFILES

_EXECUTOR, _SERVER, _HTTP = Receiver.EXECUTOR, Receiver.SERVER, Receiver.HTTP
_LEVELS = "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"
_ALL = "serve docker check"
_PORT = Kind("PORT", click.IntRange(0, 65535))

_AUDIT = PluginSetting(
    "Audit log",
    "What .ipybox/audit.jsonl records about cells and tool calls: full records code and arguments, with secrets "
    "removed; hash records only hashes of them; off records nothing",
)
_APPROVE = PluginSetting(
    "Approval of tool calls",
    "auto runs every tool call, ask asks you about each one, and a file name applies the rules in that file. A file "
    "in the workspace, such as ipybox.yaml, can only deny calls until you trust it with `ipybox trust`",
)
_PROFILE = PluginSetting(
    "Sandbox profile",
    "default, or workspace to hide your home directory as well. A sandbox-config.json in the workspace "
    "replaces parts of the profile once you trust the file with `ipybox trust`",
    ("sandbox",),
)
_DOMAINS = PluginSetting(
    "Allowed domains",
    "Hosts that code may reach, separated by commas, such as example.org,*.example.com",
    ("sandbox",),
)
_MEMORY = PluginSetting("Memory limit", "Memory that code may use, such as 4G, or 0 for no limit")
_PRELOAD = PluginSetting(
    "Preloaded modules", "Modules to import into every kernel, separated by commas, such as pandas,sympy"
)
_RESOURCES = PluginSetting(
    "Resources",
    "Let Claude page through long outputs as MCP resources instead of reading their files. The tools for resources "
    "take up context",
)
_ENGINE = PluginSetting(
    "Engine",
    "Where code runs: the name of an engine in your engines.yaml, such as slurm; empty for this machine",
    ("plain", "sandbox"),
)
_IMAGE = PluginSetting("Image", "Name of the Docker image, if it isn't ipybox", ("docker",))
_NETWORK = PluginSetting(
    "Network", "Name of a Docker network, or none to cut the container off from the network", ("docker",)
)

#: The options of each group, and the commands that have them unless an option says otherwise.
_GROUPS: dict[tuple[str, str], list[Option]] = {
    ("Workspace", "serve docker"): [
        Option(
            "workspace", "directory to use as the workspace", type=DIRECTORY, default="current directory", commands=_ALL
        ),
        Option(
            "allowed_dir",
            "add tools that transfer files to and from this directory; repeatable",
            _SERVER,
            DIRECTORIES,
            parameter="allowed_dirs",
            default="none; with Docker, the workspace",
        ),
        Option("audit", "what .ipybox/audit.jsonl records about code and arguments", _SERVER, plugin=_AUDIT),
        Option("connect_timeout", "time limit for an MCP server to start and respond to a tool call", _EXECUTOR),
        Option("register_timeout", "time limit for an MCP server to respond when you register it", _SERVER),
        Option("log_level", "log level on stderr", _EXECUTOR, choice(*_LEVELS, name="LEVEL"), commands=_ALL),
    ],
    ("Approvals", "serve docker"): [
        Option(
            "approve",
            "who approves tool calls: nobody (auto), the client's user (ask), or the rules in a file",
            type=APPROVAL,
            default="auto",
            plugin=_APPROVE,
        ),
        Option(
            "approve_shell_cmds",
            "also require approval for programs that code starts; code can bypass this",
            _EXECUTOR,
            bool,
        ),
        Option(
            "require_shell_escape",
            "let code start programs only with shell escapes, such as !command",
            _EXECUTOR,
            bool,
        ),
    ],
    ("Sandbox", _ALL): [
        Option("sandbox", "use srt to confine code to the workspace, without network access", _EXECUTOR, bool),
        Option(
            "sandbox_profile",
            "built-in sandbox settings",
            type=choice(*sorted(PROFILES)),
            default="default",
            plugin=_PROFILE,
        ),
        Option(
            "sandbox_config", "settings file in srt's format to use instead of a profile (see ipybox trust)", type=FILE
        ),
        Option("workspace_config", "use the workspace's sandbox-config.json, if it exists", type=bool),
        Option(
            "allow_domain",
            "host that code may connect to; repeatable or comma-separated",
            type=ITEMS,
            parameter="allowed_domains",
            plugin=_DOMAINS,
        ),
    ],
    ("Limits", _ALL): [
        Option(
            "memory_limit",
            "memory limit for code and its processes, such as 4G; 0 for no limit",
            _EXECUTOR,
            MEMORY,
            default="half the machine's memory with --sandbox or Docker",
            plugin=_MEMORY,
        ),
        Option("cpu_seconds", "CPU time limit per cell", _EXECUTOR, default="no limit"),
        Option("process_limit", "maximum number of concurrent processes", _EXECUTOR, default="no limit"),
    ],
    ("Kernels", "serve docker"): [
        Option("max_sessions", "maximum number of sessions, each with its own kernel", _SERVER),
        Option("session_idle_timeout", "stop a kernel that has been idle for this long", _SERVER, default="never"),
        Option("kernel_init_timeout", "time limit for a new kernel to start", _EXECUTOR),
        Option(
            "preload",
            "module to preload in every kernel (Linux); repeatable or comma-separated",
            _EXECUTOR,
            ITEMS,
            plugin=_PRELOAD,
        ),
        Option(
            "no_spare_kernel",
            "don't keep a spare kernel ready for the next session or reset; saves 20 MiB",
            _EXECUTOR,
            bool,
            parameter="spare_kernel",
        ),
    ],
    ("Results", "serve docker"): [
        Option("images", "return images as file paths (link), as images for the model (inline), or both", _SERVER),
        Option("structured_results", "add structured content with an output schema", _SERVER, bool),
        Option(
            "resources",
            "announce long outputs as MCP resources to all clients (always) or all but Claude Code (auto)",
            type=choice("auto", "always"),
            default="auto",
            plugin=_RESOURCES,
        ),
        Option("instructions", "instructions for agents; brief is for agents with the codeact skill", _SERVER),
    ],
    ("Transport", "serve"): [
        Option("transport", "MCP transport; http is Streamable HTTP", type=choice("stdio", "http"), default="stdio"),
        Option("host", "host for --transport http to listen on", _HTTP, NAME),
        Option("port", "port for --transport http to listen on; 0 for a free port", _HTTP, _PORT),
        Option(
            "allowed_host", "host name of a proxy in front of the server; repeatable", _HTTP, parameter="allowed_hosts"
        ),
        Option("tool_server_host", "host for --tool-server-port", _EXECUTOR, NAME),
        Option("tool_server_port", "additional port for the tool server", _EXECUTOR, _PORT, default="no port"),
        Option("kernel_gateway_host", "host for --kernel-gateway-port", _EXECUTOR, NAME),
        Option("kernel_gateway_port", "additional port for the kernel gateway", _EXECUTOR, _PORT, default="no port"),
    ],
    ("Other machines", "serve check"): [
        Option("engine", "engine from your engines.yaml to run kernels on", _EXECUTOR, NAME, plugin=_ENGINE),
        Option("queue_timeout", "time limit for the engine to provide a machine", _EXECUTOR),
    ],
    ("Container", "docker"): [
        Option("image", "name of the Docker image", type=NAME, default="$IPYBOX_IMAGE, or ipybox", plugin=_IMAGE),
        Option(
            "network",
            "Docker network for the container; none to cut it off",
            type=NAME,
            default="Docker's own",
            plugin=_NETWORK,
        ),
        Option("env", "environment variable to pass on to MCP servers; repeatable", type=VARIABLES, short="-e"),
    ],
    ("Internal", "serve"): [
        Option("late_checks", "start even if checks fail; each call repeats them", type=bool, hidden=True),
        Option("trusted", "hash of a workspace file to trust, for containers", type=NAMES, hidden=True),
    ],
}

OPTIONS = tuple(
    replace(
        option,
        group=group,
        commands=option.commands or commands,
        parameter=option.parameter or option.name,
    )
    for (group, commands), options in _GROUPS.items()
    for option in options
)


def options_of(command: str) -> Iterator[Option]:
    """Yields the options of a command."""
    return (option for option in OPTIONS if command in option.commands.split())


def given_parameters(given: Mapping[str, Any], receiver: Receiver) -> dict[str, Any]:
    """Returns the parameters that the given options set directly, by their names there."""
    return {
        option.parameter: given[option.name]
        for option in OPTIONS
        if option.receiver is receiver and option.name in given
    }
