"""Refuses options that a repository sets for the plugins.

Claude Code 2.1.197 lets `pluginConfigs` in a project's `.claude/settings.json` and `settings.local.json` override the
user's, so a cloned repository could turn approvals off. Later versions ignore `pluginConfigs` there.
"""

import json
import os
import stat
from pathlib import Path
from typing import cast

from .environment import LaunchError

FILES = (".claude/settings.json", ".claude/settings.local.json")

#: The prefix of the plugins' names.
OURS = "codeact-"

#: Maximum bytes to read from a file.
MAX_SIZE = 1 << 20


def refuse_project_options(workspace: Path) -> None:
    """Checks that the settings of a workspace contain no options of the plugins.

    Raises:
        LaunchError: If they do; the message says where, and what to do.
    """
    for name in FILES:
        if _sets_options(workspace / name):
            raise LaunchError(
                f"{name} in the workspace sets this plugin's options, or ipybox can't read it. Only you may set them: "
                "move its pluginConfigs to ~/.claude/settings.json, then call ipybox again"
            )


def read_settings(file: Path) -> bytes:
    """Reads a settings file; raises a ValueError if it isn't regular, or is larger than `MAX_SIZE`."""
    # Follows links, as Claude Code does, but doesn't wait for the writer of a pipe.
    with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise ValueError("not a regular file")
        content = stream.read(MAX_SIZE + 1)
    if len(content) > MAX_SIZE:
        raise ValueError("too large")
    return content


def _sets_options(file: Path) -> bool:
    """Returns whether a file sets options, as Claude Code reads it, or can't be checked."""
    try:
        content = read_settings(file)
    except OSError:  # Claude Code can't read it either
        return False
    except ValueError:
        return True
    encoding = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        # Numbers as text, because Python limits their digits and JavaScript does not.
        settings: object = json.loads(content.decode(encoding, "replace"), parse_int=str, parse_float=str)
    except RecursionError:
        return True
    except ValueError:  # Claude Code ignores it
        return False
    plugins = cast("dict[str, object]", settings).get("pluginConfigs") if isinstance(settings, dict) else None
    return isinstance(plugins, dict) and any(key.startswith(OURS) for key in cast("dict[str, object]", plugins))
