"""Confines the paths of transfers to allowed directories, even if links are created meanwhile, and protects names.

A path is resolved first, so links that stay inside work as usual. Then the resolved path, which contains no links, is
opened: a link that has since replaced a directory is not followed.
"""

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from ipybox.kernel_mgr.transfer.files import open_below
from ipybox.sandbox.policy import DEEPEST_PATH, LONGEST_PATH, SandboxPolicy
from ipybox.sandbox.settings import SandboxSettings
from ipybox.support import names
from ipybox.support.printable import printable
from ipybox.support.safe_directory import Directory, names_below, open_directory
from ipybox.support.tokens import private_directories
from ipybox.support.untrusted_paths import real_path
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


@dataclass(frozen=True)
class AllowedPath:
    """A path in an allowed directory.

    Attributes:
        base: The directory at which opening starts.
        identity: Device and inode of `base` when it was trusted.
        names: The path below `base`, where code may write.
    """

    base: Path
    identity: tuple[int, int]
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The whole path."""
        return self.base.joinpath(*self.names)

    @property
    def parent(self) -> "AllowedPath":
        """The directory that contains it; a base has none."""
        return AllowedPath(self.base, self.identity, self.names[:-1])

    @contextmanager
    def open(self, *, create: bool = False) -> Generator[Directory]:
        """Opens the path as a directory; with `create`, creates it and its parents if needed.

        Raises:
            NotADirectoryError: If it, or a parent of it, is a link or not a directory.
            PermissionError: If another directory has replaced the base.
        """
        with open_directory(self.base, create=False) as base:
            if _identity(os.fstat(base.fd)) != self.identity:
                raise PermissionError(
                    f"{self.base} was replaced by another directory after ipybox started: restart ipybox"
                )
            with open_below(base, self.names, create=create) as directory:
                yield directory


def trusted_path(path: Path) -> AllowedPath:
    """Returns the path of an existing file or directory of the host, following links."""
    path = path.resolve(strict=True)
    return AllowedPath(path.parent, _identity(path.parent.stat()), (path.name,) if path.name else ())


class AllowedDirectories:
    """The allowed directories of a workspace.

    Args:
        workspace: The base of relative paths.
        allowed: Directories, relative to the workspace or absolute. Those in the workspace need not exist.

    Raises:
        ValueError: If one of them is not a directory or can't be allowed.
    """

    def __init__(self, workspace: Path, allowed: Sequence[str | Path] = (".",)):
        self.workspace = workspace.resolve()
        self._roots = [self._root(Path(os.path.abspath(self.workspace / given))) for given in allowed]

    @property
    def allowed(self) -> list[Path]:
        """Their absolute paths."""
        return [root.path for root in self._roots]

    def locate(self, path: str | Path) -> AllowedPath:
        """Returns where a path, relative to the workspace or absolute, leads; it need not exist.

        Raises:
            PermissionError: If it is outside of the allowed directories.
            ValueError: If it is not a valid path.
        """
        if "\0" in str(path) or too_long(given := self.workspace / path):
            raise ValueError(f"{printable(path)[:100]} is not a valid path: it is too long or contains a NUL")
        real = Path(real_path(given))
        for root in self._roots:
            if real.is_relative_to(root.path):
                return AllowedPath(root.base, root.identity, real.relative_to(root.base).parts)
        where = ", ".join(map(printable, self.allowed))
        leads = "" if real == Path(os.path.normpath(given)) else " leads elsewhere and"
        raise PermissionError(f"{printable(path)}{leads} is outside the allowed directories: {where}")

    def _root(self, path: Path) -> AllowedPath:
        # Code may have created links in the workspace, so links in a path there are not resolved.
        names = names_below(path, self.workspace)
        if names is None:
            if not path.is_dir():
                raise ValueError(f"the allowed directory {path} is not a directory: create it, or allow another one")
            path = path.resolve()
            root = AllowedPath(path, _identity(path.stat()), ())
        else:
            root = AllowedPath(self.workspace, _identity(self.workspace.stat()), names)
        if any(map(is_protected, root.names)) or any(root.path.is_relative_to(secret) for secret in own_secrets()):
            raise ValueError(f"the directory {root.path} can't be allowed because its content is protected")
        return root


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino
