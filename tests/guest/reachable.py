"""An srt that every user can run, also where only root can read the checkout, as in root's home."""

import atexit
import json
import shutil
import stat
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.servers import NODE_MODULES

SRT = "@anthropic-ai/sandbox-runtime"


@cache
def srt_directory() -> Path:
    """Returns the directory of `srt`, for PATH."""
    if all(directory.stat().st_mode & stat.S_IXOTH for directory in NODE_MODULES.parents):
        return NODE_MODULES / ".bin"
    copy = Path(tempfile.mkdtemp(prefix="ipybox-tests-"))
    atexit.register(shutil.rmtree, copy)
    copy.chmod(0o755)
    for package in {*_with_dependencies(SRT)}:
        shutil.copytree(NODE_MODULES / package, copy / "node_modules" / package, symlinks=True)
    (copy / "srt").symlink_to(copy / "node_modules" / SRT / "dist" / "cli.js")
    return copy


def _with_dependencies(package: str) -> Iterator[str]:
    directory = NODE_MODULES / package
    if directory.is_dir():  # or it lies in the package that needs it
        yield package
        for name in json.loads((directory / "package.json").read_text()).get("dependencies", {}):
            yield from _with_dependencies(name)
