"""The paths that are never transferred, even in an allowed directory."""

import os
from collections.abc import Iterable
from glob import escape
from pathlib import Path

from ipybox.sandbox.policy import DEEPEST_PATH, LONGEST_PATH, SandboxPolicy
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support import names
from ipybox.support.tokens import private_directories
from ipybox.workspace.git_config import holds_credentials
from ipybox.workspace.scan import ends_with, name_matchers
from ipybox.workspace.writable import PYTHON_DIRECTORIES

_SECRETS = [name_matchers(pattern) for pattern in names.SECRET_FILES]
#: Without a sandbox, only ipybox's own rules apply.
_NO_SANDBOX = SandboxSettings(source="no settings", deny_read=(), allow_write=("/",))


class TransferRules:
    """The rules that deny transfers, and their reasons.

    Protected names match anywhere and ignore case, because some file systems do. With a sandbox, paths that its
    settings hide from code or protect from writing can't be transferred either.

    Args:
        workspace: The base of relative paths in the settings.
        allowed: The allowed directories, treated as if the settings named them.
    """

    def __init__(self, workspace: Path, allowed: Iterable[Path], settings: SandboxSettings | None = None):
        settings = settings or _NO_SANDBOX
        directories = list(allowed)
        # Names above the allowed directories don't matter: a worktree may be in `.claude`.
        self._bases = [workspace, *(path for path in directories if not path.is_relative_to(workspace))]
        roots = [escape(str(path)) for path in directories]
        read_only = [escape(str(path)) for path in PYTHON_DIRECTORIES if not workspace.is_relative_to(path)]
        if settings.file is not None:
            read_only.append(escape(str(settings.file)))
        self._policy = SandboxPolicy(
            settings,
            workspace,
            hidden=[escape(str(path)) for path in own_secrets()],
            readable=roots,
            writable=roots,
            read_only=read_only,
        )

    def download_denial(self, path: Path) -> str | None:
        """Returns why an absolute path without links can't be downloaded; None if it can."""
        if too_long(path):
            return "its path is too long"
        is_git_config = path.name.startswith("config") and ".git" in path.parts
        if _is_secret(self._names(path)) or (is_git_config and holds_credentials(str(path))):
            return "it may contain secrets"
        return "the sandbox hides it" if self._policy.read_denial(str(path)) else None

    def upload_denial(self, path: Path) -> str | None:
        """Returns why an absolute path without links can't be uploaded to; None if it can."""
        if reason := self.download_denial(path):
            return reason
        if any(map(is_protected, self._names(path))) or self._policy.write_denial(str(path)):
            return "it is protected because programs on the host trust or execute it"
        return None

    def _names(self, path: Path) -> tuple[str, ...]:
        below = (path.relative_to(base).parts for base in self._bases if path.is_relative_to(base))
        return min(below, key=len, default=path.parts)


def own_secrets() -> list[Path]:
    """Returns ipybox's private directories, with links resolved; no transfer reads or writes them."""
    return [Path(os.path.realpath(path)) for path in private_directories()]


def is_protected(name: str) -> bool:
    """Returns whether files of this name are never written."""
    return names.is_protected(name) or _is_secret((name,))


def too_long(path: Path) -> bool:
    """Returns whether a path has too many characters or components to be transferred."""
    return len(str(path)) > LONGEST_PATH or len(path.parts) > DEEPEST_PATH


def _is_secret(parts: tuple[str, ...]) -> bool:
    if any(part.lower() == names.STATE_DIR for part in parts):
        return True
    return any(ends_with(parts[:end], matchers) for matchers in _SECRETS for end in range(1, len(parts) + 1))
