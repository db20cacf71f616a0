"""What is never transferred, although it lies in an allowed directory."""

import os
import sys
from collections.abc import Iterable
from glob import escape
from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

from ipybox.sandbox.policy import DEEPEST_PATH, LONGEST_PATH, Policy
from ipybox.sandbox.settings import SandboxSettings
from ipybox.state import scratch_root, state_dir
from ipybox.workspace import names
from ipybox.workspace.git_config import holds_credentials
from ipybox.workspace.scan import ends_with, name_matchers

_SECRETS = [name_matchers(pattern) for pattern in names.SECRET_FILES]
#: Where there is no sandbox, only ipybox's own rules apply.
_NO_SANDBOX = SandboxSettings(source="no settings", deny_read=(), allow_write=("/",))


class Rules:
    """Answers why a path can't be transferred.

    Protected names are so wherever they are and in any case: some file systems ignore it. With a sandbox, what its
    settings hide from code or keep it from writing is not to be had by a transfer either.

    Args:
        workspace: The directory that relative paths of the settings mean.
        allowed: The allowed directories, which count as named in the settings.
        settings: Those of the sandbox, if there is one.
    """

    def __init__(self, workspace: Path, allowed: Iterable[Path], settings: SandboxSettings | None = None):
        settings = settings or _NO_SANDBOX
        directories = list(allowed)
        # The names that lead to these are not the concern of what is in them: a worktree may be in `.claude`.
        self._bases = [workspace, *(path for path in directories if not path.is_relative_to(workspace))]
        roots = [escape(str(path)) for path in directories]
        programs = (os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, Path(__file__).parents[1]))
        read_only = [escape(path) for path in programs if not workspace.is_relative_to(path)]
        if settings.file is not None:
            read_only.append(escape(str(settings.file)))
        self._policy = Policy(
            settings,
            workspace,
            hidden=[escape(str(path)) for path in own_secrets()],
            readable=roots,
            writable=roots,
            read_only=read_only,
        )

    def reading(self, path: Path) -> str | None:
        """Returns why an absolute path without links can't be downloaded; None if it can."""
        if too_long(path):
            return "its path is too long"
        if _is_secret(self._names(path)) or (_is_git_config(path) and holds_credentials(str(path))):
            return "it may hold secrets"
        return "the sandbox hides it" if self._policy.reads(str(path)) else None

    def writing(self, path: Path) -> str | None:
        """Returns why an absolute path without links can't be uploaded to; None if it can."""
        if reason := self.reading(path):
            return reason
        if any(map(is_protected, self._names(path))) or self._policy.writes(str(path)):
            return "it is protected, as programs of the host believe or execute it"
        return None

    def _names(self, path: Path) -> tuple[str, ...]:
        below = (path.relative_to(base).parts for base in self._bases if path.is_relative_to(base))
        return min(below, key=len, default=path.parts)


def own_secrets() -> list[Path]:
    """Returns the directories with ipybox's keys, the tokens of ports, and the host's scratch directories."""
    return [Path(os.path.realpath(path)) for path in (state_dir(), jupyter_runtime_dir(), scratch_root())]


def is_protected(name: str) -> bool:
    """Whether what has this name is never written."""
    return names.is_protected(name) or _is_secret((name,))


def too_long(path: Path) -> bool:
    """Whether a path has more characters or components than are transferred."""
    return len(str(path)) > LONGEST_PATH or len(path.parts) > DEEPEST_PATH


def _is_secret(parts: tuple[str, ...]) -> bool:
    if any(part.lower() == names.STATE_DIR for part in parts):
        return True
    return any(ends_with(parts[:end], matchers) for matchers in _SECRETS for end in range(1, len(parts) + 1))


def _is_git_config(path: Path) -> bool:
    return path.name.startswith("config") and ".git" in path.parts
