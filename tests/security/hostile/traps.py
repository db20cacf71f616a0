"""Traps: programs and modules that leave a mark when they are run or imported, and then do what they stand for.

A mark is a file in a directory that no kernel can write, so that only what runs on the host leaves one. It holds the
command line and the environment of the process that left it.

The repository brings this file along: standard library only.
"""

import os
from pathlib import Path

_PROGRAM = """#!/bin/sh
{{ {{ echo "$0 $*"; /usr/bin/env; }} >"{mark}"; }} 2>/dev/null
{then}
"""

_MODULE = """
def _mark():
    import importlib, os, runpy, sys
    try:
        with open({mark!r}, "w") as file:
            file.writelines(f"{{line}}\\n" for line in (sys.orig_argv, *map("=".join, os.environ.items())))
    except OSError:
        pass  # in a sandbox
    here, path = os.path.dirname(os.path.realpath(__file__)), sys.path[:]
    sys.path[:] = [each for each in path if os.path.realpath(each or ".") != here]
    sys.modules.pop(__name__, None)
    try:
        if __name__ == "__main__":
            runpy.run_module(__spec__.name, run_name="__main__", alter_sys=True)
        else:
            importlib.import_module(__name__)
    finally:
        sys.path[:] = path

_mark()
"""


def program(path: Path, mark: Path, real: str | None, *, status: int = 1) -> None:
    """Makes a program that leaves a mark and becomes the real one; without one, it exits with the status."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_PROGRAM.format(mark=mark, then=f'exec "{real}" "$@"' if real else f"exit {status}"))
    path.chmod(0o755)


def module(path: Path, mark: Path) -> None:
    """Makes a module that leaves a mark and lets the real one of its name take its place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_MODULE.format(mark=str(mark)))


def srt(directory: Path, mark: Path, real: str) -> Path:
    """Makes a package of srt as npm installs it, whose program is a trap; returns the program."""
    package = Path(real).resolve().parents[1]
    planted = directory / "node_modules" / "sandbox-runtime"
    program(planted / "dist" / "cli.js", mark, real)
    (planted / "package.json").write_bytes((package / "package.json").read_bytes())
    for name in ("vendor", "node_modules"):
        if (package / name).exists():
            os.symlink(package / name, planted / name)
    return planted / "dist" / "cli.js"
