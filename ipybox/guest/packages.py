"""Where the packages are that were installed for the kernels of a workspace, and how a kernel imports from there.

The host writes the directory and the kernel reads it, so both name it by this module, which imports little.
"""

import site
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path

from ipybox.workspace.names import STATE_DIR


def packages_dir(workspace: Path) -> Path:
    """Returns the directory that packages for the kernels of this workspace are installed into."""
    return workspace / STATE_DIR / "packages"


def import_from(directory: Path) -> None:
    """Lets this process import packages from a directory, now or as soon as it exists.

    They come before those of ipybox's environment, as they are what was asked for, but after the standard library:
    an old backport of one of its modules must not take its place.
    """
    entry = str(directory)
    sites = {*site.getsitepackages(), site.getusersitepackages()}
    position = next((index for index, path in enumerate(sys.path) if path in sites), len(sys.path))
    sys.path.insert(position, entry)
    # Python would find no directory, remember that, and never look again.
    sys.path_importer_cache[entry] = FileFinder(
        entry,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (SourceFileLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )
