"""Findings about what surrounds ipybox: MCP clients, proxies and certificates."""

import os
import shlex
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from ipybox.cli.install import CLIENTS
from ipybox.mcp_client.configs.clients import FILES
from ipybox.mcp_client.configs.servers import ITSELF, configured_servers
from ipybox.sandbox.findings import Finding, Install, Program, examine
from ipybox.workspace.writable import WritablePlaces

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
        finding = Finding(name, next((str(path) for path in files if path.exists()), None))
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
