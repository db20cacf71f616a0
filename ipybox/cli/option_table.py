"""The options of `ipybox serve`, `ipybox docker` and the commands that run a kernel, each defined once.

This table yields the command lines, the values for `ExecutorConfig` and `MCPServer` (`serve`), the settings of the
Claude Code plugins (`plugins/manifests.py`) and the reference `docs/settings.md` (`docs/option_reference.py`).
CONTRIBUTING.md says how to add an option.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ipybox.cli import option
from ipybox.cli.option import Option, choice, workspace_option
from ipybox.code_exec.config import ExecutorConfig
from ipybox.mcp_server.server import MCPServer
from ipybox.sandbox.settings import PROFILES

_executor = partial(Option, sets=ExecutorConfig)
_server = partial(Option, sets=MCPServer)
_http = partial(Option, sets=MCPServer.run_http)
_ALL = "serve docker check"
_LEVEL = choice("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", metavar="LEVEL")

#: The options by group and the commands that accept them by default.
_TABLE: dict[tuple[str, str], list[Option]] = {
    ("Workspace", "serve docker"): [
        workspace_option(commands=_ALL),
        _server(
            "allowed_dir",
            "add tools that copy files between this directory and the workspace; repeatable",
            option.DIRECTORIES,
            parameter="allowed_dirs",
            default="none; with Docker, the workspace",
        ),
        _server("audit", "what .ipybox/audit.jsonl records about code and arguments"),
        _executor("connect_timeout", "time limit for an MCP server to start when a tool is called"),
        _server("register_timeout", "time limit for an MCP server to respond when you register it"),
        _executor("log_level", "log level on stderr", _LEVEL, commands=_ALL),
    ],
    ("Approvals", "serve docker"): [
        Option(
            "approve",
            "tool calls that the client's user must approve: none (auto), those that may write (writes), all (ask), or "
            "as the rules in a file say",
            option.APPROVAL,
            default="auto",
            commands="serve docker install",
        ),
        _executor("approve_shell_cmds", "also require approval for programs started by code; code can bypass this"),
        _executor("require_shell_escape", "let code start programs only with shell escapes, such as !command"),
    ],
    ("Sandbox", _ALL): [
        _executor(
            "sandbox",
            "use srt to confine code to the workspace, without network access",
            commands=f"{_ALL} install",
        ),
        Option("sandbox_profile", "built-in sandbox settings", choice(*sorted(PROFILES)), default="default"),
        Option(
            "sandbox_config",
            "settings file in srt's format that overrides the profile (see ipybox trust)",
            option.FILE,
        ),
        Option("workspace_config", "use the workspace's sandbox-config.json, if it exists"),
        Option(
            "allow_domain",
            "host that code may connect to; repeatable or comma-separated",
            option.ITEMS,
            parameter="allowed_domains",
        ),
    ],
    ("Limits", _ALL): [
        _executor(
            "memory_limit",
            "memory limit for code and its processes, such as 4G; 0 for no limit",
            option.MEMORY,
            default="no limit; with --sandbox or Docker, half the machine's memory",
        ),
        _executor("cpu_seconds", "CPU time limit per cell", default="no limit"),
        _executor("process_limit", "maximum number of concurrent processes", default="no limit"),
    ],
    ("Kernels", "serve docker"): [
        _server("max_sessions", "maximum number of sessions, each with its own kernel"),
        _server("session_idle_timeout", "stop a kernel that has been idle for this long", default="never"),
        _executor("kernel_init_timeout", "time limit for a new kernel to start"),
        _executor("preload", "module to preload in every kernel (Linux); repeatable or comma-separated", option.ITEMS),
        _executor(
            "no_spare_kernel",
            "don't keep a spare kernel ready for the next session or reset; saves about 17 MiB",
            parameter="spare_kernel",
        ),
    ],
    ("Results", "serve docker"): [
        _server("images", "return images as file paths (link), as images for the model (inline), or both"),
        Option(
            "resources",
            "announce long outputs as MCP resources to all clients (always) or all but Claude Code (auto)",
            choice("auto", "always"),
            default="auto",
        ),
        _server("instructions", "instructions for agents; brief is for agents with the codeact skill"),
    ],
    ("Transport", "serve"): [
        Option("transport", "MCP transport; http is Streamable HTTP", choice("stdio", "http"), default="stdio"),
        _http("host", "host for --transport http to listen on"),
        _http("port", "port for --transport http to listen on; 0 for a free port", option.PORT),
        _http(
            "allowed_host",
            "host name of a proxy in front of the server; repeatable",
            option.HOSTS,
            parameter="allowed_hosts",
        ),
        _executor("tool_server_host", "host for --tool-server-port"),
        _executor("tool_server_port", "port for clients of the tool server", option.PORT, default="no port"),
        _executor("kernel_gateway_host", "host for --kernel-gateway-port"),
        _executor("kernel_gateway_port", "port for clients of the kernel gateway", option.PORT, default="no port"),
    ],
    ("Other machines", "serve check"): [
        _executor("engine", "engine from your engines.yaml to run kernels on", option.NAME),
        _executor("queue_timeout", "time limit for the engine to provide a machine"),
    ],
    ("Container", "docker"): [
        Option("image", "name of the Docker image", option.NAME, default="$IPYBOX_IMAGE, or ipybox"),
        Option(
            "network",
            "Docker network for the container; 'none' disables it",
            option.NAME,
            default="Docker's default",
        ),
        Option("env", "environment variable to pass on to MCP servers; repeatable", option.NAMES, short=["-e"]),
    ],
    ("Internal", "serve"): [
        Option("late_checks", "start even if checks fail; each call repeats them", hidden=True),
        Option("trusted", "hash of a workspace file to trust, for containers", option.NAMES, hidden=True),
    ],
}

for (_group, _commands), _options in _TABLE.items():
    for _option in _options:
        _option.group, _option.commands = _group, _option.commands or _commands

OPTIONS = [option for options in _TABLE.values() for option in options]


def command_options(command: str) -> list[Option]:
    """Returns the options of a command."""
    return [option for option in OPTIONS if command in option.commands.split()]


def given_parameters(given: Mapping[str, Any], of: Callable[..., Any]) -> dict[str, Any]:
    """Returns the parameters of a class or method that the given options set, by name."""
    return {option.parameter: given[option.name] for option in OPTIONS if option.sets is of and option.name in given}
