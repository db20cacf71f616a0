"""How the person started ipybox, so that messages name a setting that this person can change.

Standard library only: the plugins use it before anything is installed.
"""

import os
from enum import Enum, auto


class WayIn(Enum):
    """A way to run ipybox."""

    SDK = auto()
    COMMAND_LINE = auto()
    PLUGIN = auto()


#: Parameters whose command-line or plugin option has another name.
FLAGS = {"allowed_domains": "allow_domain", "approval_policy": "approve"}

#: Claude Code sets it for the programs of a plugin: https://code.claude.com/docs/en/plugins-reference
PLUGIN_VARIABLE = "CLAUDE_PLUGIN_ROOT"

_way = WayIn.SDK
_read_by_model = False


def use_command_line() -> None:
    """Records that this process was started by a command line, possibly a plugin's."""
    global _way
    _way = WayIn.PLUGIN if PLUGIN_VARIABLE in os.environ else WayIn.COMMAND_LINE


def use_model() -> None:
    """Records that a model reads this process's messages about code, and must pass on what only a person can do."""
    global _read_by_model
    _read_by_model = True


def for_person(sentence: str) -> str:
    """Returns a sentence that asks the person to do something; for a model, an instruction to pass it on."""
    return f"Tell the user: {sentence}" if _read_by_model else sentence


def name_of(parameter: str) -> str:
    """Returns the name under which the person sets a parameter of an executor."""
    return f"--{FLAGS.get(parameter, parameter).replace('_', '-')}" if _way is WayIn.COMMAND_LINE else parameter


def option_name(flag: str) -> str:
    """Returns the name under which the person sets an option of the command line."""
    if _way is not WayIn.PLUGIN:
        return flag
    name = flag.removeprefix("--").replace("-", "_")
    return f"the plugin's option {'allowed_domains' if name == FLAGS['allowed_domains'] else name}"


def setting(parameter: str) -> str:
    """Returns the place where the person sets a parameter, which must be an option of the plugins."""
    if _way is WayIn.PLUGIN:
        return f"the plugin's option {parameter} (with /plugin configure, for the next session)"
    return name_of(parameter)


def sandbox_file() -> str:
    """Returns the file that can replace built-in settings of the sandbox."""
    if _way is WayIn.PLUGIN:
        return "sandbox-config.json in the workspace"
    return f"a file for {name_of('sandbox_config')}"


def restart() -> str:
    """Returns what the person must do for changed files to take effect."""
    match _way:
        case WayIn.PLUGIN:
            return "reconnect ipybox with /mcp"
        case WayIn.COMMAND_LINE:
            return "restart ipybox"
        case WayIn.SDK:
            return "start a new executor"
