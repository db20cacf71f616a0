"""A Kernel Gateway with `gateway_provisioners` on the head of the cluster, whose kernels it starts on nodes by SSH."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from tests.cluster.machines import DIRECTORY, HEAD, NODES, processes
from tests.jupyter_engine.foreign import JupyterServer, jupyter
from tests.servers import ROOT

#: Where `make cluster` installs Kernel Gateway and `gateway_provisioners`.
PROVISIONERS = ROOT / ".venv-provisioners/bin"

#: The addresses of the head and the nodes.
HEAD_ADDRESS = "10.77.0.1"
NODE_ADDRESSES = ("10.77.0.11", "10.77.0.12")

#: The name of the kernel specification. The tests of all Jupyter servers use the default one, which is the same.
KERNEL_NAME = "nodes"

#: The program of a kernel on a node, below the directory of the gateway.
LAUNCHER = "scripts/launch_ipykernel.py"


@asynccontextmanager
async def provisioned_gateway(directory: Path) -> AsyncGenerator[JupyterServer]:
    """Runs the gateway, which listens on this machine, and ends the kernels that it leaves on the nodes."""
    await asyncio.to_thread(_install_kernel, directory)
    _write_ssh_keys(directory / ".ssh")
    env = {
        "HOME": str(directory),
        "JUPYTER_PATH": str(directory / "share/jupyter"),
        "GP_RESPONSE_IP": HEAD_ADDRESS,
        "GP_REMOTE_USER": "root",
        "GP_UNAUTHORIZED_USERS": "nobody",  # by default, root
        "GP_KERNEL_LOG_DIR": str(directory),
        "GP_SOCKET_TIMEOUT": "0",  # by default, the server spends most of its time in a wait of 10 ms
    }
    try:
        async with jupyter(directory, python=PROVISIONERS / "python", env=env, prefix=HEAD) as running:
            yield running
    finally:
        for pid in kernel_processes(directory):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def kernel_processes(directory: Path) -> set[int]:
    """Returns the ids of the processes on the nodes that are kernels of a gateway, or belong to one."""
    found: set[int] = set()
    for pid in set[int]().union(*map(processes, NODES)):
        with suppress(psutil.NoSuchProcess):
            command = psutil.Process(pid).cmdline()
            if any(part.startswith(str(directory)) and part.endswith(LAUNCHER) for part in command):
                found.add(pid)
    return found


def _install_kernel(directory: Path) -> None:
    """Installs the kernel specification as its documentation says, and completes it."""
    hosts = [part for address in NODE_ADDRESSES for part in ("--remote-hosts", address)]
    names = ["--kernel-name", KERNEL_NAME]
    install = [PROVISIONERS / "jupyter-ssh-spec", "install", "--prefix", directory, *names, *hosts]
    subprocess.run([*map(str, install)], check=True, capture_output=True)
    kernels = directory / "share/jupyter/kernels"
    specification = kernels / KERNEL_NAME / "kernel.json"
    content = json.loads(specification.read_text())
    # `python` by default: that of the node's PATH, which may lack what the kernel needs.
    content["argv"][0] = str(PROVISIONERS / "python")
    specification.write_text(json.dumps(content))
    shutil.copytree(kernels / KERNEL_NAME, kernels / "python3")


def _write_ssh_keys(directory: Path) -> None:
    """Writes the user's key, and those of the hosts: `gateway_provisioners` accepts no others."""
    directory.mkdir(mode=0o700)
    shutil.copy(DIRECTORY / "user_key", directory / "id_ed25519")
    host_key = (DIRECTORY / "host_key.pub").read_text()
    (directory / "known_hosts").write_text("".join(f"{address} {host_key}" for address in NODE_ADDRESSES))
