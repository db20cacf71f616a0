"""Prepares the start of a gateway process: its command, its environment and its private directory.

`KernelGateway` prepares a launch for each gateway process, and `GatewayProcess` starts it.
"""

import asyncio
import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ipybox.guest.descendants import GATEWAY_ID, KERNEL_ID
from ipybox.guest.landlock import is_available
from ipybox.guest.packages import packages_dir
from ipybox.guest.process import COMMAND_SPACE, PLACEHOLDER
from ipybox.guest.protocol import ENVIRONMENT_FILE, TOKEN_FILE
from ipybox.kernel_mgr.gateway import GatewaySetup
from ipybox.support.inherited import PROXIES, SAFE_VARIABLES, inherited
from ipybox.support.private_file import create_private
from ipybox.support.scratch import ScratchDirectory
from ipybox.workspace.writable import WritablePlaces, interpreter

if TYPE_CHECKING:
    from ipybox.sandbox.launch import Sandbox
    from ipybox.sandbox.policy import SandboxPolicy

logger = logging.getLogger(__name__)

#: Default variables of kernels. Links to pydantic's documentation in validation errors would only cost tokens.
DEFAULT_VARIABLES = {"PYDANTIC_ERRORS_INCLUDE_URL": "0"}

#: Private cache directories for programs in a sandboxed kernel, because the home directory is not writable.
SANDBOX_DIRECTORIES = {
    "MPLCONFIGDIR": "matplotlib",
    "PIP_CACHE_DIR": "pip",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
}


@dataclass(frozen=True, kw_only=True)
class GatewayLaunch:
    """A prepared start of a gateway process.

    Attributes:
        env: The environment of the gateway and of srt around it. Excludes kernel variables, as srt is not sandboxed.
        cwd: The working directory; None for that of this process.
        scratch: The private directory of the gateway, which the owner of the launch removes.
        policy: Explains denials of the sandbox; None without a sandbox.
        notices: Sentences about files of the workspace that the sandbox hides or can't protect.
        clean_up: Removes what the process leaves in the workspace if it is killed.
    """

    command: Sequence[str]
    env: Mapping[str, str]
    cwd: Path | None
    scratch: ScratchDirectory
    policy: "SandboxPolicy | None" = None
    notices: Sequence[str] = field(default_factory=list[str])
    clean_up: Callable[[], None] | None = None


@dataclass(frozen=True, kw_only=True)
class GatewayConfig(GatewaySetup):
    """The configuration of a kernel gateway on this machine; prepares each launch of its process.

    Attributes:
        working_dir: The working directory of the kernels; None for that of this process.
        tools: Whether code in kernels can call tools.
    """

    working_dir: Path | None = None
    tools: bool = False

    @property
    def workspace(self) -> Path:
        """The working directory of the kernels, without links in its path."""
        return (self.working_dir or Path.cwd()).resolve()

    async def prepare(self, token: str | None) -> GatewayLaunch:
        """Returns a launch of the gateway, with a new private directory.

        Args:
            token: The token that clients on a port must send; None if there is no port.

        Raises:
            OSError, SandboxError: If the gateway can't be started.
        """
        sandbox = self._sandbox()
        scratch = ScratchDirectory(sockets=True, writable=() if sandbox is None else sandbox.writable())
        try:
            guest_dir = scratch.path if sandbox is None else scratch.path / "guest"
            self._fill(guest_dir, scratch.path, token)
            command = self._command()
            command += ["--space", " " * (len(command[0]) + len(str(guest_dir)) + COMMAND_SPACE)]
            env = self._environment(guest_dir, scratch.path)
            if sandbox is None:
                return GatewayLaunch(command=command, env=env, cwd=self.working_dir, scratch=scratch)
            return await self._confined(sandbox, command, env, guest_dir, scratch)
        except BaseException:
            scratch.remove()
            raise

    async def _confined(
        self, sandbox: "Sandbox", command: list[str], env: dict[str, str], guest_dir: Path, scratch: ScratchDirectory
    ) -> GatewayLaunch:
        from ipybox.sandbox.launch import free_names, srt_temporary
        from ipybox.sandbox.preflight import require_sandbox

        require_sandbox(sandbox.path)  # reports a missing program before the workspace is searched
        if sandbox.settings.has_network:
            command.append("--proxy")
            env |= inherited(PROXIES)  # how srt reaches the hosts that its settings allow
        if sys.platform == "linux":
            command += ["--confine", "--writable", *map(str, sandbox.writable()), str(guest_dir)]
        # For root, bubblewrap protects parts of /proc, so srt can't mount a new one for its inner PID namespace, and a
        # kernel would not find itself in /proc. The gateway's own confinement replaces that namespace.
        one_namespace = os.geteuid() == 0 and is_available() and not sandbox.settings.weaker_nested_sandbox
        if one_namespace:
            command.append("--landlock")
        command += ["--directory", str(sandbox.workspace)]
        env["PATH"] = sandbox.path
        # srt runs bash with a socket as stdin. Without SHLVL, bash would assume a remote login and run ~/.bashrc.
        env["SHLVL"] = "1"
        env["TMPDIR"] = str(srt_temporary(scratch.path))
        env["CLAUDE_CODE_TMPDIR"] = str(guest_dir / SANDBOX_DIRECTORIES["TMPDIR"])  # becomes TMPDIR inside srt
        # In a thread, because searching a large workspace takes a while.
        prepare = partial(sandbox.kernel_command, one_namespace=one_namespace)
        command = await asyncio.to_thread(prepare, command, scratch.path, guest_dir)
        notices = [*sandbox.settings.notices, *sandbox.found.notices]
        for notice in notices:
            logger.warning("%s", notice)
        return GatewayLaunch(
            command=command,
            env=env,
            cwd=scratch.path,
            scratch=scratch,
            policy=sandbox.policy(guest_dir),
            notices=notices,
            clean_up=partial(free_names, sandbox.workspace),
        )

    def _sandbox(self) -> "Sandbox | None":
        if self.sandbox is None:
            return None
        from ipybox.workspace.imports import guard_imports

        guard_imports(WritablePlaces(self.workspace, self.sandbox))
        from ipybox.sandbox.launch import Sandbox

        return Sandbox(self.sandbox, self.workspace)

    def _command(self) -> list[str]:
        options = {
            "--tools": [] if self.tools else None,
            "--spare": [] if self.spare_kernel else None,
            "--preload": self.preload or None,
            "--memory-limit": None if self.limits.memory is None else [str(self.limits.memory)],
            "--process-limit": None if self.limits.processes is None else [str(self.limits.processes)],
        }
        given = [word for name, values in options.items() if values is not None for word in (name, *values)]
        return [str(interpreter()), "-P", "-m", "ipybox.guest.gateway", "--log-level", self.log_level, *given]

    def _environment(self, guest_dir: Path, private_dir: Path) -> dict[str, str]:
        own = {
            "JUPYTER_CONFIG_DIR": str(guest_dir),
            "JUPYTER_NO_CONFIG": "1",
            "IPYBOX_RUNTIME_DIR": str(guest_dir),
            "TMPDIR": str(guest_dir),  # Jupyter leaves files there
            GATEWAY_ID: str(private_dir),
            KERNEL_ID: PLACEHOLDER,
        }
        return inherited(SAFE_VARIABLES) | own

    def _fill(self, guest_dir: Path, private_dir: Path, token: str | None) -> None:
        """Creates the guest's private directory with the kernels' environment."""
        guest_dir.mkdir(mode=0o700, exist_ok=True)
        environment = DEFAULT_VARIABLES | inherited(SAFE_VARIABLES) | dict(self.env)
        bin_dir = str(interpreter().parent)
        path = environment.get("PATH", os.defpath)
        if bin_dir not in path.split(os.pathsep):
            environment["PATH"] = f"{bin_dir}{os.pathsep}{path}"  # so that `!python` runs the kernel's Python
        if self.sandbox is not None:
            environment["SANDBOX_RUNTIME"] = "1"  # srt sets it for programs that it runs
            for variable, name in SANDBOX_DIRECTORIES.items():
                (guest_dir / name).mkdir()
                environment[variable] = str(guest_dir / name)
            if self.sandbox.has_network:
                environment["NO_PROXY"] = environment["no_proxy"] = self.sandbox.no_proxy
        environment.setdefault("PIP_PYTHON", str(self._pip(private_dir)))
        environment[GATEWAY_ID] = str(private_dir)
        for name, text in (ENVIRONMENT_FILE, json.dumps(environment)), (TOKEN_FILE, token):
            if text is not None:
                with create_private(guest_dir / name) as opened:
                    opened.write(text)

    def _pip(self, private_dir: Path) -> Path:
        """Creates the program that pip in kernels runs in place of itself, and returns its path.

        Sandboxed code can't change it, because all kernels run it.
        """
        command = [str(interpreter()), "-P", "-m", "ipybox.guest.pip_command", str(packages_dir(self.workspace))]
        directory = private_dir
        if self.sandbox is not None:
            from ipybox.sandbox.launch import srt_temporary

            directory = srt_temporary(private_dir)
        program = directory / "pip-of-kernels"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        program.chmod(0o700)
        return program
