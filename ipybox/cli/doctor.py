"""`ipybox doctor`: what works on this machine, and what to install for the rest.

Checks run concurrently, each with its own time limit. A mode works if a cell just ran in it; for Docker, a responding
daemon and the image suffice.
"""

import asyncio
import os
import platform
import shlex
import sys
from asyncio import gather
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import click

from ipybox import CodeExecutor
from ipybox.cli.command import as_json, command
from ipybox.cli.install import CLIENTS
from ipybox.cli.output import say, say_json, say_table
from ipybox.docker.engine import DOCKER, default_image, examine_engine
from ipybox.mcp_client.configs.clients import FILES
from ipybox.mcp_client.configs.servers import ITSELF, configured_servers
from ipybox.sandbox.findings import INSTALL_UV, Finding, Install, Program, examine
from ipybox.sandbox.preflight import INSTALL_SRT, diagnose
from ipybox.support.errors import IpyboxError
from ipybox.workspace.writable import WritablePlaces

#: Time limit for a kernel to start, run a cell and stop, in seconds.
KERNEL_TIMEOUT = 60.0

#: What can be checked; "other" covers further programs that people often use.
Mode = Literal["plain", "sandbox", "docker", "other"]

UV = Program("uv", "uv", remedy=INSTALL_UV)
_INSTALL = Install("@anthropic-ai/claude-code", ("npm install -g",), "install it with {} to use the plugins")
CLAUDE = Program("claude-code", "claude", remedy=_INSTALL)

#: Directories of the authorities that an administrator added, and the bundle that then contains them.
AUTHORITIES = {
    "usr/local/share/ca-certificates": "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/ca-trust/source/anchors": "etc/pki/tls/certs/ca-bundle.crt",
}

#: Variables that name certificates, and those that give certificates to uv and to Node.js.
BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
UV_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
NODE_CERTIFICATES = ("NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA")

#: How a working mode is described.
_WORKS = {
    "plain": "works (a kernel ran a cell)",
    "sandbox": "works (a kernel ran a cell, confined by the sandbox)",
    "docker": "the daemon responds, and the image exists",
}
_COLORS = {"ok": "green", "missing": "yellow", "broken": "red"}


@command("doctor")
@as_json
@click.option("--sandbox", is_flag=True, help="fail if the sandbox doesn't work")
@click.option("--docker", is_flag=True, help="fail if Docker mode doesn't work")
def doctor(workspace: Path, *, sandbox: bool, docker: bool, as_json: bool) -> int:
    """Prints what works and what is missing; returns the exit status, 0 if Python and the requested modes work."""
    found = asyncio.run(examine_modes(workspace, kernels=True))
    works = {mode: _works(findings) for mode, findings in found.items()}
    asked: set[Mode] = {"plain", *(("sandbox",) if sandbox else ()), *(("docker",) if docker else ())}
    if as_json:
        described = {
            mode: [{**asdict(each), "remedy": each.remedy and str(each.remedy)} for each in findings]
            for mode, findings in found.items()
        }
        say_json({mode: {"works": works[mode], "findings": findings} for mode, findings in described.items()})
    else:
        _show(found, asked)
    return 0 if all(works[mode] for mode in asked) else 1


async def examine_modes(workspace: Path, *, kernels: bool = False) -> dict[Mode, list[Finding]]:
    """Returns the findings of each mode's checks, in order; with `kernels`, finally whether a kernel runs."""
    checks: dict[Mode, list[Callable[[], list[Finding]]]] = {
        "plain": [lambda: [Finding("python", f"{platform.python_version()} ({sys.executable})")]],
        "sandbox": [diagnose],
        "docker": [_docker],
        "other": [lambda: [examine(UV)], lambda: client_findings(workspace), network_findings],
    }

    async def examine_mode(mode: Mode) -> list[Finding]:
        found = [finding for each in await gather(*map(asyncio.to_thread, checks[mode])) for finding in each]
        if kernels and mode in ("plain", "sandbox") and _works(found):
            found.append(await _kernel(sandbox=mode == "sandbox"))
        return found

    return dict(zip(checks, await gather(*map(examine_mode, checks)), strict=True))


def _docker() -> list[Finding]:
    client = examine(DOCKER)
    return [client, *(examine_engine(default_image())[0] if client.problem is None else ())]


async def _kernel(*, sandbox: bool) -> Finding:
    try:
        with TemporaryDirectory(prefix="ipybox-doctor-") as directory:
            workspace, outside = Path(directory, "workspace"), Path(directory, "outside")
            workspace.mkdir()
            executor = CodeExecutor(working_dir=workspace, sandbox=sandbox)
            async with asyncio.timeout(KERNEL_TIMEOUT), executor:
                await executor.execute("try: open('../outside', 'w')\nexcept OSError: pass")
            if sandbox and outside.exists():
                problem = "srt lets code write outside the workspace"
                return Finding("kernel", "is not confined", problem, INSTALL_SRT)
    except TimeoutError:
        return Finding("kernel", "starts too slowly", f"no cell ran within {KERNEL_TIMEOUT:g} s", "try again")
    except (IpyboxError, OSError) as exc:
        return Finding("kernel", "does not run", str(exc), "fix the other problems listed here first")
    return Finding("kernel", "runs a cell")


def client_findings(workspace: Path) -> list[Finding]:
    """Returns a finding for each installed MCP client, with how to add ipybox to it, without starting a server. Blocks.

    A client is installed if its command is on PATH or, without a command, if its configuration exists.
    """
    servers, unreadable = configured_servers(workspace, WritablePlaces(workspace))
    configured = {server.client for server in servers if server.problem == ITSELF and not server.disabled}
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        found = [each for each in pool.map(partial(_client, workspace, configured), CLIENTS) if each.found is not None]
    return [
        *(found or [examine(CLAUDE)]),
        *(Finding("client files", "unreadable", line, "correct the file") for line in unreadable),
    ]


def _client(workspace: Path, configured: set[str], name: str) -> Finding:
    files = [[*each.paths(workspace)][-1] for each in FILES if each.client == name]  # the last is the user's
    if add := CLIENTS[name].add:
        finding = examine(Program(name, add.split()[0], remedy="install it again"))
    else:
        finding = Finding(name, next((str(path) for path in files if os.path.exists(path)), None))
    if finding.found is None or finding.problem is not None or not files:
        return finding
    if name in configured:
        return replace(finding, found=f"{finding.found}, with ipybox")
    remedy = f"add ipybox with `ipybox install {name}`, unless a plugin provides it"
    return replace(finding, found=f"{finding.found}, without ipybox", remedy=remedy)


def network_findings(environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> list[Finding]:
    """Returns findings on the proxy and on certificates that variables name, or an administrator added in `root`."""
    names = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy")
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return _certificates(environ, root)
    proxy = Finding("proxy", f"{environ[name].rpartition('@')[2]} ({name})")  # without the password
    if name.lower() == "http_proxy":
        problem = f"{name} is set, but downloads use https, which it doesn't cover"
        proxy = replace(proxy, problem=problem, remedy=f'run `export HTTPS_PROXY="${name}"`')
    return [proxy, *_certificates(environ, root)]


def _certificates(environ: Mapping[str, str], root: Path) -> list[Finding]:
    named = {name: environ[name] for name in (*BUNDLES, "NODE_EXTRA_CA_CERTS") if environ.get(name)}
    missing = [
        Finding("certificates", file, f"{name} is {file}, which can't be read", f"correct it, or run `unset {name}`")
        for name, file in named.items()
        if not os.access(file, os.R_OK)
    ]
    bundle = next((named[name] for name in BUNDLES if name in named), None)
    added = [root / file for place, file in AUTHORITIES.items() if any((root / place).rglob("*.*"))]
    if missing or not (bundle or added):
        return missing
    file = bundle or str(added[0])
    uv = f"SSL_CERT_FILE={shlex.quote(file)}" if bundle else "UV_SYSTEM_CERTS=1"
    needs = [("uv", UV_CERTIFICATES, uv), ("Node.js", NODE_CERTIFICATES, f"NODE_EXTRA_CA_CERTS={shlex.quote(file)}")]
    return [
        Finding("certificates", file, f"{program} doesn't use the certificates in {file}", f"run `export {setting}`")
        for program, variables, setting in needs
        if not any(environ.get(name) for name in variables)
    ] or [Finding("certificates", file)]


def _works(findings: list[Finding]) -> bool:
    return all(finding.problem is None for finding in findings)


def _show(found: dict[Mode, list[Finding]], asked: set[Mode]) -> None:
    rows = [(_state(each), mode, each.what, _found(each)) for mode, findings in found.items() for each in findings]
    say_table(["State", "Mode", "What", "Found"], rows, [_COLORS[row[0]] for row in rows])
    say("")
    for mode, findings in found.items():
        problems = [f"  {finding}" for finding in findings if finding.problem is not None]
        if mode != "other":
            problems = [f"{mode} mode: " + ("can't work" if problems else _WORKS[mode]), *problems]
        elif problems:
            problems = ["other problems:", *problems]
        for line in problems:
            say(line, fg="red" if mode in asked and not _works(findings) else None)


def _found(finding: Finding) -> str:
    has_advice = finding.problem is None and finding.remedy is not None
    return f"{finding.found}: {finding.remedy}" if has_advice else finding.found or ""


def _state(finding: Finding) -> str:
    if finding.problem is None:
        return "ok"
    return "missing" if finding.found is None else "broken"
