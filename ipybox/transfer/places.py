"""Where files are transferred: paths in allowed directories, opened so that no link leads out of them.

A path is resolved first, so that links which stay inside work as elsewhere. What is opened is the resolved path, on
which there is no link: one that takes a directory's place in between is not followed.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ipybox.beneath import Directory, open_directory, spelled_in
from ipybox.printable import printable
from ipybox.transfer.rules import is_protected, own_secrets, too_long


@dataclass(frozen=True)
class Place:
    """A path in an allowed directory.

    Attributes:
        base: Where opening starts.
        identity: Device and number of `base`, when it was trusted.
        names: The way from there. Others can write it.
    """

    base: Path
    identity: tuple[int, int]
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The path as a whole."""
        return self.base.joinpath(*self.names)

    @property
    def parent(self) -> "Place":
        """The directory that it is in; a base has none."""
        return Place(self.base, self.identity, self.names[:-1])

    @contextmanager
    def open(self, *, create: bool = False) -> Generator[Directory]:
        """Opens it as a directory, which is made with its parents if need be and `create` says so.

        Raises:
            NotADirectoryError: It, or a parent of it, is a link or no directory.
            PermissionError: Another directory has taken the base's place.
        """
        with ExitStack() as stack:
            directory = stack.enter_context(open_directory(self.base, create=False))
            if _identity(os.fstat(directory.fd)) != self.identity:
                raise PermissionError(f"{self.base} is another directory than when ipybox was started: start it again")
            for name in self.names:
                directory = stack.enter_context(directory.open(name, create=create))
            yield directory


class Places:
    """The allowed directories of a workspace.

    Args:
        workspace: The directory that relative paths mean.
        allowed: Directories, relative to the workspace or absolute. One in the workspace need not be there.

    Raises:
        ValueError: One of them is no directory or can't be allowed.
    """

    def __init__(self, workspace: Path, allowed: Sequence[str | Path] = (".",)):
        self.workspace = workspace.resolve()
        self._roots = [self._root(Path(os.path.abspath(self.workspace / given))) for given in allowed]

    @property
    def allowed(self) -> list[Path]:
        """Their absolute paths."""
        return [root.path for root in self._roots]

    def locate(self, path: str | Path) -> Place:
        """Returns the place that a path leads to, relative to the workspace or absolute; it need not exist.

        Raises:
            PermissionError: It is in no allowed directory.
            ValueError: It is no path.
        """
        if "\0" in str(path) or too_long(given := self.workspace / path):
            raise ValueError(f"{printable(path)[:100]} is too long for a path, or has a NUL")
        real = Path(os.path.realpath(given))
        for root in self._roots:
            if real.is_relative_to(root.path):
                return Place(root.base, root.identity, real.relative_to(root.base).parts)
        where = ", ".join(map(printable, self.allowed))
        leads = "" if real == Path(os.path.normpath(given)) else " leads elsewhere and"
        raise PermissionError(f"{printable(path)}{leads} is in none of the allowed directories: {where}")

    def _root(self, path: Path) -> Place:
        # Links in the workspace may be of the code's making: what is given there is taken as it is spelled.
        names = spelled_in(path, self.workspace)
        if names is None:
            if not path.is_dir():
                raise ValueError(f"the allowed directory {path} is not a directory: make it, or allow another one")
            path = path.resolve()
            root = Place(path, _identity(path.stat()), ())
        else:
            root = Place(self.workspace, _identity(self.workspace.stat()), names)
        if any(map(is_protected, root.names)) or any(root.path.is_relative_to(secret) for secret in own_secrets()):
            raise ValueError(f"the directory {root.path} can't be allowed, as what is in it is protected")
        return root


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino
