"""The output of the SessionStart hook: what a call to the server does not say by itself.

https://code.claude.com/docs/en/hooks
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

from launch.environment import Environment

NAMES = {"plain": "codeact-default", "sandbox": "codeact-sandbox", "docker": "codeact-docker"}

#: Advice for a person with several of the plugins.
CHOOSE = "They provide the same tools and skill, so disable all but one with /plugin"


def print_notice(mode: str, workspace: Path) -> None:
    """Prints the notices as the hook's output, for the person and for the model; nothing without notices."""
    lines = [*_several(NAMES[mode], workspace)]
    if mode != "docker" and not Environment.here().ready:
        lines.append(_installs(NAMES[mode]))
    if lines:
        person, model = ("\n".join(texts) for texts in zip(*lines, strict=True))
        context = {"hookEventName": "SessionStart", "additionalContext": model}
        print(json.dumps({"systemMessage": person, "hookSpecificOutput": context}))


def _installs(name: str) -> tuple[str, str]:
    installs = f"{name} is installing its packages. This takes a minute or more, but happens only once."
    return (
        f"{installs} You can keep working: its tools wait until it is done.",
        f"{installs} Keep working: its tools wait until it is done. If they are missing, call WaitForMcpServers, "
        "or search for ipybox with ToolSearch. You don't need a new session.",
    )


def _several(name: str, workspace: Path) -> Iterator[tuple[str, str]]:
    """Yields a notice if several of the plugins are enabled; only one of them does."""
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path(os.environ.get("HOME", "/")) / ".claude")
    enabled: dict[str, bool] = {}
    for file in (home / "settings.json", *(workspace / ".claude" / f"settings{kind}.json" for kind in ("", ".local"))):
        with suppress(OSError, ValueError):
            settings: object = json.loads(file.read_bytes())
            plugins: object = (
                cast("dict[str, object]", settings).get("enabledPlugins") if isinstance(settings, dict) else None
            )
            if isinstance(plugins, dict):
                enabled |= cast("dict[str, bool]", plugins)
    here = sorted({plugin.partition("@")[0] for plugin, on in enabled.items() if on} & {*NAMES.values()})
    if len(here) > 1 and here[0] == name:
        text = f"The plugins {' and '.join(here)} are all enabled. {CHOOSE}."
        yield text, f"Tell the user: {text}"
