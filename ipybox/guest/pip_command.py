"""`pip` for code in a kernel: `!pip install`, `%pip install`, `python -m pip install` and the like.

    python -P -m ipybox.guest.pip_command PACKAGES_DIR RUNNER pip's arguments...

ipybox's own environment does not change: the application installs packages for kernels into the workspace, as with the
tool `install_package`. The kernel's environment sets PIP_PYTHON, which makes pip run this program in place of itself
(https://pip.pypa.io/en/stable/cli/pip/#cmdoption-python). The pip of a virtual environment created by code, and
commands that install nothing, work as usual.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ipybox.guest.tools.http import ConnectionPool, ServerAddress
from ipybox.guest.tools.protocol import HOST_VARIABLE, INSTALL_PATH, InstallRequest

#: Options that have no effect here: flags, and options with a value.
_FLAGS = (
    *("--user", "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--break-system-packages", "--no-color"),
    *("--no-warn-script-location", "--no-warn-conflicts", "--prefer-binary", "--require-virtualenv", "--isolated"),
)
_VALUES = ("--root-user-action", "--progress-bar", "--timeout", "--retries", "--exists-action", "--upgrade-strategy")


class _UsageError(Exception):
    """pip does not support the request here; the message says why."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


def main(packages: Path, runner: str, arguments: list[str]) -> NoReturn:
    """Runs a pip command, and exits with its status."""
    if (other := _other_environment(runner)) is not None:
        python = str(other / "bin" / "python")
        os.execv(python, [python, runner, *arguments])
    command = next((word for word in arguments if not word.startswith("-")), "")
    if command in ("install", "uninstall"):
        try:
            sys.exit(change(arguments[arguments.index(command) + 1 :], remove=command == "uninstall"))
        except _UsageError as exc:
            print(f"ERROR: pip {command}: {exc}", file=sys.stderr)
            sys.exit(1)
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    os.execve(sys.executable, [sys.executable, "-P", runner, *arguments], environ)


def change(arguments: Sequence[str], *, remove: bool) -> int:
    """Lets the application install or remove packages, one after the other, and returns the exit status.

    Raises:
        _UsageError: If the application does not support the request.
    """
    given = _parser().parse_args([word for word in arguments if not (remove and word in ("-y", "--yes"))])
    packages = _requested(given.packages, given.requirement)
    if not packages:
        raise _UsageError("name at least one package")
    if given.upgrade and not remove:
        note = "packages that meet the specifier are not upgraded: request a newer version, such as 'numpy>=2'"
        print(f"NOTE: pip install --upgrade: {note}", file=sys.stderr)
    if not os.environ.get(HOST_VARIABLE):
        raise _UsageError("packages can't be installed from here: install them before the kernel starts")
    host = ConnectionPool(ServerAddress.of_kernel())
    for package in packages:
        request: InstallRequest = {"package_name": package}
        if remove:
            request["remove"] = True
        try:
            _, body = host.request("POST", INSTALL_PATH, json.dumps(request).encode())
            reply = json.loads(body)
        except (OSError, ValueError) as exc:
            raise _UsageError(f"can't install packages because ipybox can't be reached: {exc}") from None
        if "error" in reply:
            print(f"ERROR: {reply['error']}", file=sys.stderr)
            return 1
        if not given.quiet:
            print("\n".join(block["text"] for block in reply["content"]), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("packages", nargs="*")
    parser.add_argument("-r", "--requirement", action="append", default=[])
    parser.add_argument("-q", "--quiet", action="count")
    parser.add_argument("-v", "--verbose", action="count")
    parser.add_argument("-U", "--upgrade", action="store_true")
    for flag in _FLAGS:
        parser.add_argument(flag, action="store_true")
    for option in _VALUES:
        parser.add_argument(option)
    return parser


def _requested(packages: Sequence[str], files: Sequence[str]) -> list[str]:
    requested = [_located(package, Path.cwd()) for package in packages]
    given = [Path(file) for file in files]
    for file in given:  # files may include others, or each other
        try:
            text = file.read_text()
        except (OSError, ValueError) as exc:
            raise _UsageError(f"{file} can't be read: {exc}") from None
        for line in text.replace("\\\n", " ").splitlines():
            line = f" {line}".partition(" #")[0].strip()
            option, _, value = line.replace("=", " ", 1).partition(" ") if line.startswith("-") else ("", "", line)
            if option in ("-r", "--requirement"):
                given += {file.parent / value.strip()}.difference(given)
            elif line.startswith("-") or " --" in line:
                raise _UsageError(f"{file}: {line!r}: options are not supported, only packages and -r")
            elif line:
                requested.append(_located(line, file.parent))
    return requested


def _located(package: str, directory: Path) -> str:
    """Returns the requested package; makes a path, which extras may follow, absolute."""
    path = package.partition("[")[0]
    is_path = path.startswith((".", "/", "~")) or path.endswith((".whl", ".tar.gz", ".zip"))
    return str(directory.resolve() / os.path.expanduser(package)) if is_path and "://" not in package else package


def _other_environment(runner: str) -> Path | None:
    """Returns the virtual environment of a pip, or `None` for the system's and the kernels'."""
    path = Path(runner).resolve()
    if path.parents[1] in map(Path.resolve, map(Path, sys.path)):
        return None
    return next((parent for parent in path.parents if (parent / "pyvenv.cfg").exists()), None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
