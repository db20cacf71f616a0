"""The SessionStart hook's output: what keeps a plugin from working, for the person and for the model.

https://code.claude.com/docs/en/hooks
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Literal, NoReturn, cast

from launch.environment import PACKAGE, Environment
from launch.project_settings import read_settings
from launch.session_notice import PluginWorkspace, SessionNotice, session_notice

from ipybox.support.probe import end_all
from ipybox.support.state import data_dir, state_dir, unwritable
from ipybox.support.way_in import use_command_line

NAMES: dict[str, str] = {"plain": "codeact-default", "sandbox": "codeact-sandbox", "docker": "codeact-docker"}

#: Seconds to wait for programs; the hook may take one second, in which Python starts twice.
TIMEOUT = 0.45

#: Advice if several of the plugins are enabled.
CHOOSE = "They provide the same tools and skill, so disable all but one with /plugin"


def print_notice(mode: Literal["plain", "sandbox", "docker"], workspace: Path) -> None:
    """Prints the notices as the hook's output, or nothing without problems, within a second."""
    use_command_line()
    name = NAMES[mode]
    lines = [*map(SessionNotice.to_pass_on, [*_unwritable(mode), *_several(name, workspace)])]
    environment = Environment.here()
    if mode != "docker" and not environment.ready:
        installs = f"{name} is installing its packages. This takes a minute or more, but happens only once."
        model = (
            f"{installs} Keep working: its tools wait until it is done. If they are missing, call WaitForMcpServers, "
            "or search for ipybox with ToolSearch. You don't need a new session."
        )
        lines.append(SessionNotice(f"{installs} You can keep working: its tools wait until it is done.", model))

    def too_long(_: int, __: FrameType | None) -> NoReturn:
        end_all()
        _print(lines)
        os._exit(0)  # threads may still wait for programs; calls report errors

    signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT)
    for place, line in enumerate(session_notice(mode, name, _user_settings(mode, workspace, environment))):
        lines.insert(place, line)
    signal.setitimer(signal.ITIMER_REAL, 0)
    _print(lines)


def _print(lines: list[SessionNotice]) -> None:
    if not lines:
        return
    context = {"hookEventName": "SessionStart", "additionalContext": "\n".join(line.model for line in lines)}
    person = "\n".join(line.person for line in lines)
    print(json.dumps({"systemMessage": person, "hookSpecificOutput": context}), flush=True)


def _user_settings(mode: str, workspace: Path, environment: Environment) -> PluginWorkspace:
    if image := os.environ.get("CLAUDE_PLUGIN_OPTION_IMAGE"):
        os.environ["IPYBOX_IMAGE"] = image
    policy = os.environ.get("CLAUDE_PLUGIN_OPTION_APPROVE", "auto")
    return PluginWorkspace(
        path=workspace.resolve(),
        profile=os.environ.get("CLAUDE_PLUGIN_OPTION_SANDBOX_PROFILE") or "default",
        policy=workspace / policy if policy not in ("", "auto", "writes", "ask") else None,
        # In Docker mode, there is no environment on the host.
        program=["uvx", "--from", str(PACKAGE), "ipybox"] if mode == "docker" else [str(environment.command)],
    )


def _unwritable(mode: str) -> Iterator[str]:
    """Yields a line for each directory that ipybox needs to write and can't."""
    for directory in (state_dir(), *([] if mode == "docker" else [data_dir()])):
        parent = directory
        while not parent.exists() and parent != parent.parent:
            parent = parent.parent
        if not parent.is_dir():
            yield f"{unwritable(directory, 'Not a directory')}."
        elif not os.access(parent, os.W_OK | os.X_OK):
            yield f"{unwritable(directory, 'Permission denied')}."


def _several(name: str, workspace: Path) -> Iterator[str]:
    """Yields a line if several of the plugins are enabled; only the first of them does."""
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path(os.environ.get("HOME", "/")) / ".claude")
    enabled: dict[str, bool] = {}
    for file in (home / "settings.json", *(workspace / ".claude" / f"settings{kind}.json" for kind in ("", ".local"))):
        with suppress(OSError, ValueError, RecursionError):
            settings: object = json.loads(read_settings(file))
            plugins: object = (
                cast("dict[str, object]", settings).get("enabledPlugins") if isinstance(settings, dict) else None
            )
            if isinstance(plugins, dict):
                enabled |= cast("dict[str, bool]", plugins)
    here = sorted({plugin.partition("@")[0] for plugin, on in enabled.items() if on} & {*NAMES.values()})
    if len(here) > 1 and here[0] == name:
        yield f"The plugins {' and '.join(here)} are all enabled. {CHOOSE}."
