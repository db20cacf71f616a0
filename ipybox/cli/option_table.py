"""The options of `ipybox` and `ipybox docker`, each written once.

From this table come both parsers (`options`, `docker_options`), the values for `ExecutorConfig` and `MCPServer`
(`command`, `serve`), the arguments for the ipybox in a container (`docker_options`), the settings of the Claude Code
plugins (`plugins/manifests.py`) and the reference `docs/options.md` (`docs/option_reference.py`). CONTRIBUTING.md says
how to add an option.

Like `option`, it needs only the standard library.
"""

from pathlib import Path

from ipybox.cli.option import Command, Option, PluginSetting, Receiver, absolute_path
from ipybox.cli.option_values import approval, items, memory_size, seconds, variable_name
from ipybox.cli.place_options import PLACE_OPTIONS
from ipybox.mcp_server.choices import AUDIT_OPTIONS, IMAGES, INSTRUCTIONS
from ipybox.sandbox.settings import PROFILES

_SANDBOX = "sandbox"
_LIMITS = "limits"

#: What `ipybox --help` says about a group, beyond its title.
GROUPS = {_SANDBOX: None, _LIMITS: "resource limits of the code and all processes that it starts"}

OPTIONS = (
    Option(
        name="workspace",
        help="working directory of the code (default: .)",
        syntax={"type": Path, "default": Path()},
    ),
    Option(
        name="allowed_dir",
        help="offer tools that upload and download files in DIR, absolute or in the workspace; repeatable",
        docker_help="offer tools that upload and download files in DIR; repeatable (default: the workspace)",
        receiver=Receiver.SERVER,
        parameter="allowed_dirs",
        syntax={"action": "append", "metavar": "DIR"},
    ),
    Option(
        name="approve",
        help="how tool calls are approved: auto (all), ask (by the client's user), or a rules file (default: auto)",
        docker_help="how tool calls are approved: auto (all), ask (by the client's user), or a rules file in the "
        "workspace (default: auto)",
        plugin=PluginSetting(
            "Approval of tool calls",
            "auto to accept those that code makes, ask to be asked about each, or a file with rules, such as "
            "ipybox.yaml in the workspace: one there can only deny until you trust it with `ipybox trust`",
        ),
        syntax={"type": approval, "metavar": "HOW"},
    ),
    Option(
        name="approve_shell_cmds",
        help="ask about programs that code starts (shell escapes, subprocess and the like), as --approve says about "
        "tool calls; a convenience, which code can avoid: --sandbox limits what programs can do",
        receiver=Receiver.EXECUTOR,
        passed_on=True,
        syntax={"action": "store_true", "default": None},
    ),
    Option(
        name="require_shell_escape",
        help="with --approve-shell-cmds: code can start programs only with shell escapes, such as !command",
        receiver=Receiver.EXECUTOR,
        passed_on=True,
        syntax={"action": "store_true", "default": None},
    ),
    Option(
        name="audit",
        help="what .ipybox/audit.jsonl contains of cells and tool calls: code and arguments without secrets (full, the "
        "default), only their hashes (hash), or nothing (off)",
        receiver=Receiver.SERVER,
        passed_on=True,
        plugin=PluginSetting(
            "Audit log",
            "What .ipybox/audit.jsonl contains of cells and tool calls: full for code and arguments without secrets, "
            "hash for their hashes, off for nothing",
        ),
        syntax={"choices": AUDIT_OPTIONS},
    ),
    Option(
        name="images",
        help="return images as paths of their files (link), as images for the model (inline), or both (default: both)",
        receiver=Receiver.SERVER,
        passed_on=True,
        syntax={"choices": IMAGES},
    ),
    Option(
        name="structured_results",
        help="return structured content with an output schema in addition to text and images, for programs that read "
        "results; clients such as Claude Code then show the model JSON in place of the text",
        receiver=Receiver.SERVER,
        passed_on=True,
        syntax={"action": "store_true"},
    ),
    Option(
        name="resources",
        help="announce long outputs as MCP resources to every client (always), or to all except Claude Code, "
        "which adds resource tools to the model's context (auto, the default)",
        passed_on=True,
        plugin=PluginSetting(
            "Resources",
            "always to let Claude read long outputs as MCP resources, for which the client offers tools that cost "
            "context; else Claude reads their files",
        ),
        syntax={"choices": ("auto", "always")},
    ),
    Option(
        name="connect_timeout",
        help="seconds in which an MCP server must start and answer when its tools are called (default: 30)",
        receiver=Receiver.EXECUTOR,
        passed_on=True,
        syntax={"type": seconds, "metavar": "N"},
    ),
    Option(
        name="register_timeout",
        help="seconds in which it must answer when it is registered, which may include a download (default: 120)",
        receiver=Receiver.SERVER,
        passed_on=True,
        syntax={"type": seconds, "metavar": "N"},
    ),
    Option(
        name="kernel_init_timeout",
        help="seconds in which a new kernel must start and answer (default: 60)",
        receiver=Receiver.EXECUTOR,
        passed_on=True,
        syntax={"type": seconds, "metavar": "N"},
    ),
    Option(
        name="preload",
        help="module that kernels have imported from their start, on Linux, such as pandas; repeatable, or a list "
        "with commas",
        receiver=Receiver.EXECUTOR,
        passed_on=True,
        plugin=PluginSetting(
            "Preloaded modules", "Modules that code finds imported already, separated by commas, such as pandas,sympy"
        ),
        syntax={"action": "extend", "type": items, "metavar": "MODULE"},
    ),
    Option(
        name="no_spare_kernel",
        help="keep no kernel ready for the next session or reset, which saves 20 MiB and lets both take longer",
        parameter="spare_kernel",
        receiver=Receiver.EXECUTOR,
        passed_on=True,
        syntax={"action": "store_const", "const": False},
    ),
    Option(
        name="instructions",
        help="instructions for agents: full, or brief for agents with the codeact skill (default: full)",
        receiver=Receiver.SERVER,
        passed_on=True,
        syntax={"choices": INSTRUCTIONS},
    ),
    Option(
        name="max_sessions",
        help="maximum number of kernels (default: 8)",
        receiver=Receiver.SERVER,
        passed_on=True,
        syntax={"type": int, "metavar": "N"},
    ),
    Option(
        name="session_idle_timeout",
        help="seconds after which a kernel without cells and without a person is stopped; the next cell starts a new "
        "one, and says that state was lost (default: no limit)",
        receiver=Receiver.SERVER,
        passed_on=True,
        syntax={"type": seconds, "metavar": "N"},
    ),
    Option(
        name="log_level",
        help="level of the log on stderr (default: WARNING)",
        receiver=Receiver.EXECUTOR,
        passed_on=True,
        syntax={"choices": ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")},
    ),
    Option(
        name="transport",
        help="how clients connect: http is Streamable HTTP (default: stdio)",
        commands=Command.SERVE,
        syntax={"choices": ("stdio", "http")},
    ),
    Option(
        name="host",
        help="host on which --transport http listens (default: 127.0.0.1)",
        commands=Command.SERVE,
    ),
    Option(
        name="port",
        help="port of --transport http, or 0 for a free one (default: 8910)",
        commands=Command.SERVE,
        syntax={"type": int},
    ),
    Option(
        name="allowed_host",
        help="name by which clients reach a proxy in front of --transport http, such as ipybox.example.org; repeatable",
        commands=Command.SERVE,
        syntax={"action": "append", "metavar": "NAME"},
    ),
    Option(
        name="tool_server_host",
        help="host of the tool server's port (default: localhost)",
        commands=Command.SERVE,
        receiver=Receiver.EXECUTOR,
    ),
    Option(
        name="tool_server_port",
        help="port of the tool server (default: no port)",
        commands=Command.SERVE,
        receiver=Receiver.EXECUTOR,
        syntax={"type": int},
    ),
    Option(
        name="kernel_gateway_host",
        help="host of the kernel gateway's port (default: localhost)",
        commands=Command.SERVE,
        receiver=Receiver.EXECUTOR,
    ),
    Option(
        name="kernel_gateway_port",
        help="port of the kernel gateway (default: no port)",
        commands=Command.SERVE,
        receiver=Receiver.EXECUTOR,
        syntax={"type": int},
    ),
    *PLACE_OPTIONS,
    Option(
        name="sandbox",
        help="run code inside Anthropic's sandbox-runtime (srt)",
        docker_help="run code inside srt in the container, isolated from the MCP servers and their secrets",
        receiver=Receiver.EXECUTOR,
        group=_SANDBOX,
        syntax={"action": "store_true"},
    ),
    Option(
        name="sandbox_profile",
        help="built-in settings of the sandbox (default: default)",
        group=_SANDBOX,
        of_sandbox=True,
        passed_on=True,
        plugin=PluginSetting(
            "Sandbox profile",
            "default, or workspace to hide the home directory as well; a sandbox-config.json in the workspace can "
            "restrict it, and open more once you trust it with `ipybox trust`",
            ("sandbox",),
        ),
        syntax={"choices": sorted(PROFILES)},
    ),
    Option(
        name="sandbox_config",
        help="settings in srt's format that replace those of the profile; a file in the workspace can only restrict "
        "the profile until you trust it (ipybox trust)",
        group=_SANDBOX,
        of_sandbox=True,
        one_of="settings file",
        syntax={"type": absolute_path, "metavar": "FILE"},
    ),
    Option(
        name="workspace_config",
        help="use sandbox-config.json in the workspace, if it exists, as --sandbox-config",
        group=_SANDBOX,
        of_sandbox=True,
        passed_on=True,
        one_of="settings file",
        syntax={"action": "store_true"},
    ),
    Option(
        name="allow_domain",
        help="host that can be reached in addition to those of the settings; repeatable, or a list with commas",
        parameter="allowed_domains",
        group=_SANDBOX,
        of_sandbox=True,
        passed_on=True,
        plugin=PluginSetting(
            "Allowed domains",
            "Hosts that code may reach, separated by commas, such as example.org,*.example.com",
            ("sandbox",),
        ),
        syntax={"action": "extend", "type": items, "metavar": "DOMAIN"},
    ),
    Option(
        name="late_checks",
        help="start even if the sandbox, the --approve rules or the audit log fail their checks; each call repeats the "
        "check, and returns the error instead of running code",
        commands=Command.SERVE,
        group=_SANDBOX,
        syntax={"action": "store_true"},
    ),
    Option(
        name="trusted",
        help="hash of a workspace file to trust, which `ipybox docker` passes to its container; repeatable",
        commands=Command.SERVE,
        group=_SANDBOX,
        syntax={"action": "append", "metavar": "SHA256"},
    ),
    Option(
        name="memory_limit",
        help="memory limit, such as 4G, or 0 for no limit (default: no limit, or half of the machine's with --sandbox)",
        docker_help="memory limit, such as 4G, or 0 for no limit (default: half of the machine's)",
        receiver=Receiver.EXECUTOR,
        group=_LIMITS,
        plugin=PluginSetting("Memory limit", "Memory that code may use, such as 4G; 0 for no limit"),
        syntax={"type": memory_size, "metavar": "SIZE"},
    ),
    Option(
        name="cpu_seconds",
        help="CPU time of one cell (default: no limit)",
        receiver=Receiver.EXECUTOR,
        group=_LIMITS,
        passed_on=True,
        syntax={"type": float, "metavar": "N"},
    ),
    Option(
        name="process_limit",
        help="number of processes (default: no limit)",
        receiver=Receiver.EXECUTOR,
        group=_LIMITS,
        passed_on=True,
        syntax={"type": int, "metavar": "N"},
    ),
    Option(
        name="image",
        help="the image (default: $IPYBOX_IMAGE, or ipybox)",
        commands=Command.DOCKER,
        plugin=PluginSetting("Image", "Name of the image, if it is not ipybox", ("docker",)),
        syntax={"metavar": "NAME"},
    ),
    Option(
        name="network",
        help="a Docker network, such as none (default: its own)",
        commands=Command.DOCKER,
        plugin=PluginSetting(
            "Network", "none to keep the container off the network, or the name of another one of Docker's", ("docker",)
        ),
        syntax={"metavar": "NAME"},
    ),
    Option(
        name="env",
        help="variable of this environment for the container's MCP servers; the workspace's .env is read in any case",
        commands=Command.DOCKER,
        short="-e",
        syntax={"action": "append", "type": variable_name, "metavar": "NAME"},
    ),
)
