"""The directory of packages that were installed for a workspace's kernels, and how a kernel imports from it.

The application writes the directory and the kernel reads it. Both use this module for its path, so it imports little.
"""

import os
import site
import sys
from importlib.machinery import FileFinder
from pathlib import Path

from ipybox.guest.bytecode import loaders
from ipybox.support.names import STATE_DIR

#: The directory of a module that Python programs of kernels import when they start, and the variables that it reads:
#: the environment and directory of packages, and the inode of the kernel's stdout.
CHILD_SITE = str(Path(__file__).with_name("child_site"))
PACKAGES, STDOUT = "IPYBOX_PACKAGES", "IPYBOX_STDOUT"


def packages_dir(workspace: Path) -> Path:
    """Returns the directory in which packages for the kernels of this workspace are installed."""
    return workspace / STATE_DIR / "packages"


def let_children_import(directory: Path) -> None:
    """Lets Python programs that this process starts import packages from a directory."""
    os.environ[PACKAGES] = f"{sys.prefix}{os.pathsep}{directory}"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [CHILD_SITE, os.environ.get("PYTHONPATH")]))


def import_from(directory: Path) -> None:
    """Lets this process import packages from a directory, now or as soon as it exists.

    They come before those of ipybox's environment, because the user requested them, but after the standard library: an
    old backport of one of its modules must not replace it.
    """
    entry = str(directory)
    sites = {*site.getsitepackages(), site.getusersitepackages()}
    position = next((index for index, path in enumerate(sys.path) if path in sites), len(sys.path))
    sys.path.insert(position, entry)
    # Otherwise Python would find no directory, remember that, and never check again.
    sys.path_importer_cache[entry] = FileFinder(entry, *loaders())
