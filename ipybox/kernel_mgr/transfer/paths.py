"""Confines the paths of transfers to allowed directories, even if links are created meanwhile.

A path is resolved first, so links that stay inside work as usual. Then the resolved path, which contains no links, is
opened: a link that has since replaced a directory is not followed.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ipybox.kernel_mgr.transfer.rules import is_protected, own_secrets, too_long
from ipybox.support.printable import printable
from ipybox.support.safe_directory import Directory, names_below, open_directory
from ipybox.support.untrusted_paths import real_path


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
        with ExitStack() as stack:
            directory = stack.enter_context(open_directory(self.base, create=False))
            if _identity(os.fstat(directory.fd)) != self.identity:
                raise PermissionError(
                    f"{self.base} was replaced by another directory after ipybox started: restart ipybox"
                )
            for name in self.names:
                directory = stack.enter_context(directory.open(name, create=create))
            yield directory


def trusted_path(path: Path) -> AllowedPath:
    """Returns the path of a file or directory of the host, following links.

    Raises:
        FileNotFoundError: If it does not exist.
    """
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
