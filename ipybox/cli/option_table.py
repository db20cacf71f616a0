"""The options of `ipybox serve`, `ipybox docker` and the commands that run a kernel, each written once.

From this table come the command lines (`parsing`), the values for `ExecutorConfig` and `MCPServer` (`serve`), the
arguments for the ipybox in a container (`docker`), the settings of the Claude Code plugins (`plugins/manifests.py`) and
the reference `docs/options.md` (`docs/option_reference.py`). CONTRIBUTING.md says how to add an option.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ipybox.cli import option
from ipybox.cli.option import Option, Receiver, choice
from ipybox.sandbox.settings import PROFILES

_own = partial(Option, receiver=None)
_server = partial(Option, receiver=Receiver.SERVER)
_http = partial(Option, receiver=Receiver.HTTP)
_ALL = "serve docker check"
_LEVEL = choice("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", name="LEVEL")

#: The options of each group, and the commands that have them unless an option says otherwise.
_GROUPS: dict[tuple[str, str], list[Option]] = {
    ("Workspace", "serve docker"): [
        _own(
            "workspace",
            "directory to use as the workspace",
            option.DIRECTORY,
            default="current directory",
            commands=_ALL,
        ),
        _server(
            "allowed_dir",
            "add tools that transfer files to and from this directory; repeatable",
            option.DIRECTORIES,
            parameter="allowed_dirs",
            default="none; with Docker, the workspace",
        ),
        _server("audit", "what .ipybox/audit.jsonl records about code and arguments"),
        Option("connect_timeout", "time limit for an MCP server to start and respond to a tool call"),
        _server("register_timeout", "time limit for an MCP server to respond when you register it"),
        Option("log_level", "log level on stderr", _LEVEL, commands=_ALL),
    ],
    ("Approvals", "serve docker"): [
        _own(
            "approve",
            "who approves tool calls: nobody (auto), the client's user (ask), or the rules in a file",
            option.APPROVAL,
            default="auto",
        ),
        Option("approve_shell_cmds", "also require approval for programs that code starts; code can bypass this", bool),
        Option("require_shell_escape", "let code start programs only with shell escapes, such as !command", bool),
    ],
    ("Sandbox", _ALL): [
        Option("sandbox", "use srt to confine code to the workspace, without network access", bool),
        _own("sandbox_profile", "built-in sandbox settings", choice(*sorted(PROFILES)), default="default"),
        _own(
            "sandbox_config",
            "settings file in srt's format to use instead of a profile (see ipybox trust)",
            option.FILE,
        ),
        _own("workspace_config", "use the workspace's sandbox-config.json, if it exists", bool),
        _own(
            "allow_domain",
            "host that code may connect to; repeatable or comma-separated",
            option.ITEMS,
            parameter="allowed_domains",
        ),
    ],
    ("Limits", _ALL): [
        Option(
            "memory_limit",
            "memory limit for code and its processes, such as 4G; 0 for no limit",
            option.MEMORY,
            default="half the machine's memory with --sandbox or Docker",
        ),
        Option("cpu_seconds", "CPU time limit per cell", default="no limit"),
        Option("process_limit", "maximum number of concurrent processes", default="no limit"),
    ],
    ("Kernels", "serve docker"): [
        _server("max_sessions", "maximum number of sessions, each with its own kernel"),
        _server("session_idle_timeout", "stop a kernel that has been idle for this long", default="never"),
        Option("kernel_init_timeout", "time limit for a new kernel to start"),
        Option("preload", "module to preload in every kernel (Linux); repeatable or comma-separated", option.ITEMS),
        Option(
            "no_spare_kernel",
            "don't keep a spare kernel ready for the next session or reset; saves 20 MiB",
            bool,
            parameter="spare_kernel",
        ),
    ],
    ("Results", "serve docker"): [
        _server("images", "return images as file paths (link), as images for the model (inline), or both"),
        _server("structured_results", "also return results as structured content, described by an output schema", bool),
        _own(
            "resources",
            "announce long outputs as MCP resources to all clients (always) or all but Claude Code (auto)",
            choice("auto", "always"),
            default="auto",
        ),
        _server("instructions", "instructions for agents; brief is for agents with the codeact skill"),
    ],
    ("Transport", "serve"): [
        _own("transport", "MCP transport; http is Streamable HTTP", choice("stdio", "http"), default="stdio"),
        _http("host", "host for --transport http to listen on"),
        _http("port", "port for --transport http to listen on; 0 for a free port", option.PORT),
        _http("allowed_host", "host name of a proxy in front of the server; repeatable", parameter="allowed_hosts"),
        Option("tool_server_host", "host for --tool-server-port"),
        Option("tool_server_port", "additional port for the tool server", option.PORT, default="no port"),
        Option("kernel_gateway_host", "host for --kernel-gateway-port"),
        Option("kernel_gateway_port", "additional port for the kernel gateway", option.PORT, default="no port"),
    ],
    ("Other machines", "serve check"): [
        Option("engine", "engine from your engines.yaml to run kernels on", option.NAME),
        Option("queue_timeout", "time limit for the engine to provide a machine"),
    ],
    ("Container", "docker"): [
        _own("image", "name of the Docker image", option.NAME, default="$IPYBOX_IMAGE, or ipybox"),
        _own("network", "Docker network for the container; none disables it", option.NAME, default="Docker's default"),
        _own("env", "environment variable to pass on to MCP servers; repeatable", option.VARIABLES, short="-e"),
    ],
    ("Internal", "serve"): [
        _own("late_checks", "start even if checks fail; each call repeats them", bool, hidden=True),
        _own("trusted", "hash of a workspace file to trust, for containers", option.NAMES, hidden=True),
    ],
}

OPTIONS = tuple(
    replace(each, group=group, commands=each.commands or commands, parameter=each.parameter or each.name)
    for (group, commands), options in _GROUPS.items()
    for each in options
)


def options_of(command: str) -> Iterator[Option]:
    """Yields the options of a command."""
    return (each for each in OPTIONS if command in each.commands.split())


def given_parameters(given: Mapping[str, Any], receiver: Receiver) -> dict[str, Any]:
    """Returns the parameters that the given options set directly, by their names there."""
    return {each.parameter: given[each.name] for each in OPTIONS if each.receiver is receiver and each.name in given}


def sandbox_mistake(given: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with the given options of the sandbox; None if nothing is."""
    if "sandbox_config" in given and "workspace_config" in given:
        return "--sandbox-config and --workspace-config can't be combined"
    needless = [each.flag for each in OPTIONS if each.group == "Sandbox" and each.name in given]
    if "sandbox" in given or not needless:
        return None
    return f"{needless[0]} has no effect without the sandbox: add --sandbox"
