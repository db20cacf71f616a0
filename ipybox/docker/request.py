"""Serves from a container, as configured by the options of `ipybox docker`.

Imports only the standard library, even indirectly: a plugin starts the container before anything is installed.
"""

import hashlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ipybox.docker.container import WORKSPACE, Options
from ipybox.docker.engine import DockerError, default_image
from ipybox.docker.launcher import launch
from ipybox.docker.refusal import refuse
from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.support.printable import printable
from ipybox.support.sizes import parse_bytes
from ipybox.support.untrusted_paths import real_path
from ipybox.workspace.trust import SANDBOX_CONFIG, TrustStore, read_untrusted

#: Options that `container_options` processes.
HANDLED = {"--workspace", "--allowed-dir", "--approve", "--sandbox", "--sandbox-config", "--memory-limit"} | {
    *("--image", "--network", "--env")
}


def run(arguments: Sequence[str]) -> NoReturn:
    """Replaces this process with a container that serves. Reports an error to the user and the client, and exits."""
    try:
        launch(container_options(arguments))
    except DockerError as exc:
        reason = printable(str(exc), lines=True)
        print(f"ipybox: {reason}", file=sys.stderr, flush=True)
        refuse(reason)
        sys.exit(1)


def container_options(arguments: Sequence[str]) -> Options:
    """Converts options of `ipybox docker`, each as `--name=value`, to options for the container.

    Options that aren't in `HANDLED` are passed unchanged to ipybox in the container, which checks them.
    """
    given: dict[str, list[str]] = {}
    for name, _, value in (argument.partition("=") for argument in arguments):
        given.setdefault(name, []).append(value)
    last = {name: values[-1] for name, values in given.items()}
    workspace = Path(last.get("--workspace", ".")).resolve()
    if not workspace.is_dir():
        raise DockerError(f"the workspace {workspace} is not a directory")
    return Options(
        workspace=workspace,
        image=last.get("--image") or default_image(),
        network=last.get("--network"),
        env=[_variable(name, workspace) for name in given.get("--env", [])],
        memory_limit=_memory(last.get("--memory-limit")),
        sandbox="--sandbox" in given,
        passed_on=[
            *(f"--allowed-dir={directory}" for directory in given.get("--allowed-dir", ["."]) if directory),
            *_files(last, workspace),
            *(argument for argument in arguments if argument.partition("=")[0] not in HANDLED),
        ],
    )


def _variable(name: str, workspace: Path) -> str:
    """Returns the name of a variable, without a value, because all users of the machine can read command lines."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        name = name.partition("=")[0]
        raise DockerError(f"--env: {name!r}: give only the variable's name; its value is read from the environment")
    if name not in os.environ:
        raise DockerError(f"-e {name}: environment variable {name} is not set; set it, or add it to {workspace}/.env")
    return name


def _memory(text: str | None) -> int | None:
    try:
        limit = None if text is None else parse_bytes(text)
        ResourceLimits(memory=limit or None)
    except ValueError as exc:
        raise DockerError(f"--memory-limit: {exc}") from exc
    return limit


def _files(given: Mapping[str, str], workspace: Path) -> list[str]:
    """Returns the arguments that name files in the container, and the hashes of content that a person trusts.

    The container can't access the host's trust store, and can't trust a store that code may have written.
    """
    arguments: list[str] = []
    trusted: list[tuple[str | Path, str]] = []
    profile = given.get("--sandbox-profile", "default")
    if (config := given.get("--sandbox-config")) is not None:
        arguments.append(f"--sandbox-config={_inside(config, workspace, 'the sandbox settings')}")
        trusted.append((config, profile))
    if "--workspace-config" in given:
        trusted.append((workspace / SANDBOX_CONFIG, profile))
    match given.get("--approve", "auto"):
        case "auto":
            pass
        case "writes" | "ask" as asking:
            arguments.append(f"--approve={asking}")
        case file:
            # Without --late-checks, ipybox in the container would exit without telling the MCP client why.
            arguments += [f"--approve={_inside(file, workspace, 'the approval rules')}", "--late-checks"]
            trusted.append((file, ""))
    store = TrustStore(workspace)
    for file, compared_with in trusted:
        place = Path(real_path(Path(file).expanduser()))
        with suppress(OSError):  # the container reports what is wrong
            data = read_untrusted(place, workspace)
            if store.trusts(place, data, compared_with):
                arguments.append(f"--trusted={hashlib.sha256(data).hexdigest()}")
    return arguments


def _inside(file: str, workspace: Path, content: str) -> str:
    place = Path(real_path(Path(file).expanduser()))
    if not place.is_relative_to(workspace):
        raise DockerError(f"the container can't see {place}: move {content} into {workspace}")
    return f"{WORKSPACE}/{place.relative_to(workspace)}"
