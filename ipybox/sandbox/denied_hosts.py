"""Explains the errors of connections that the sandbox denies: the host, and the setting that allows it."""

import re
from collections.abc import Iterator
from typing import Final

from ipybox.sandbox.denial_text import enumeration, shortened
from ipybox.sandbox.policy import SandboxPolicy, is_loopback
from ipybox.support.way_in import restart, setting

_HOST: Final = r"(\[[0-9A-Fa-f:.%]{2,60}\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?)"

#: Answers of resolvers; matched only in the forms of errors, because ordinary text may contain these words.
_UNKNOWN: Final = (
    r"(?:Temporary failure in name resolution|Name or service not known|No address associated with hostname"
    r"|nodename nor servname provided)"
)
_NO_NAME: Final = re.compile(
    rf"\[Errno -?\d+\] {_UNKNOWN}|ssl:\S+ \[{_UNKNOWN}|(?:ping6?|nc|telnet|line \d+): {_HOST}: {_UNKNOWN}"
    rf"|\.\.\. failed: {_UNKNOWN}|Could not resolve host|Failed to resolve '|getaddrinfo E[A-Z]"
    r"|unable to resolve host address|failed to lookup address information|dial tcp: lookup "
)
_NO_ROUTE: Final = re.compile(
    r"(?:\[Errno \d+\] |connect: |ssl:\S+ \[)[Nn]etwork is unreachable|connect ENETUNREACH"
    r"|Failed to connect to \S+ port \d"
)
_PROXY: Final = re.compile(
    r"Tunnel connection failed: 403|CONNECT tunnel failed, response 403|HTTP code 403 from proxy|ProxyError: 403\b"
    r"|X-Proxy-Error: blocked-by-|Connection blocked by network allowlist|Proxy tunneling failed: Forbidden"
    r"|CONNECT \S+: Forbidden"
)
#: Answers that may also come from a server, so that the host must be one for which only the proxy can have answered.
_FORBIDDEN: Final = re.compile(
    r"HTTP Error 403: |403 Client Error: |'403 Forbidden' for url|returned error: 403|403 Forbidden - "
    r"|ERROR 403: Forbidden"
)
_NAMED: Final = re.compile(
    rf"Failed to resolve '{_HOST}'|[Cc]ould not resolve (?:hostname|host):? '?{_HOST}"
    rf"|resolve host address [‘'`\"]{_HOST}|getaddrinfo E[A-Z_]+ {_HOST}|ENETUNREACH {_HOST}:"
    rf"|Cannot connect to host {_HOST}:\d|dial tcp: lookup {_HOST}|dial tcp {_HOST}:\d|Pool\(host='{_HOST}'"
    rf"|Failed to connect to {_HOST} port|CONNECT {_HOST}:\d+: Forbidden|Resolving {_HOST} "
    rf"|(?:ping6?|nc|telnet|line \d+): {_HOST}: [TNn]"
)
_ADDRESS: Final = re.compile(rf"\b(?:https?|wss?|ftp|ssh|git)://(?:[^\s/@'\"]{{1,200}}@)?{_HOST}")

#: A refused connection, and the addresses of this machine: in the sandbox, they are those of the sandbox.
_REFUSED: Final = re.compile(
    r"connection refused|econnrefused|connect call failed|failed to connect to (?:localhost|127\.|\[?::1)",
    re.IGNORECASE,
)
_LOOPBACK: Final = re.compile(r"(?<![\w.-])(?:localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|::1)(?![\w-])", re.IGNORECASE)

#: Stands for a host that no text names.
ANY_HOST: Final = "any host"

#: Texts in a line, in lower case, that may report a denied connection.
NETWORK_SIGNS: Final = (
    *("name resolution", "name or service not known", "no address associated", "nodename nor servname"),
    *("could not resolve host", "failed to resolve", "getaddrinfo e", "resolve host address", "lookup "),
    *("network is unreachable", "enetunreach", "failed to connect to", "403", "forbidden", "blocked-by-"),
    *("blocked by network allowlist", "connection refused", "econnrefused", "connect call failed"),
)


def denied_host(line: str, context: str, policy: SandboxPolicy) -> Iterator[tuple[str, str]]:
    """Yields the host whose denial a line reports, and the message that explains it, if the settings deny it.

    Args:
        line: The line.
        context: The lines before it, which name the host if the line does not.
        policy: The settings of the sandbox.
    """
    by_proxy = _PROXY.search(line) is not None
    direct = not by_proxy and (_NO_NAME.search(line) or _NO_ROUTE.search(line)) is not None
    unsure = "failed to connect to" in line.lower()
    if not by_proxy and not direct:
        # Only with a proxy: otherwise a server inside the sandbox has answered.
        if not policy.settings.allowed_domains or not _FORBIDDEN.search(line):
            return
        unsure = True
    host = _find_host(line, context)
    source, now = policy.settings.source, enumeration(policy.settings.allowed_domains)
    if host is None:
        if not unsure:
            because = f"code can reach only hosts in network.allowedDomains of {source} (now: {now})"
            remedy = f"To open a host, list it in {setting('allowed_domains')}{_or_file(policy)}."
            yield ANY_HOST, f"The sandbox refused the network: {because}. {remedy}"
        return
    if is_loopback(host):
        return
    rule = policy.host_rule(host)
    remedy = ""
    if rule is None:
        because = f"{host} is not in network.allowedDomains of {source} (now: {now})"
        remedy = f" To open it, list it in {setting('allowed_domains')}{_or_file(policy)}."
    elif not rule.allowed:
        pattern = "" if rule.entry == host else f" ({shortened(rule.entry)})"
        because = f"network.deniedDomains of {source} lists {host}{pattern}"
    elif by_proxy:
        because = f"{shortened(rule.entry)} in network.allowedDomains doesn't cover this port or address of {host}"
    elif direct and not unsure:
        because = f"{host} can be reached only through the proxy in HTTP_PROXY, which this program did not use"
    else:
        return
    yield host, f"The sandbox refused the network: {because}.{remedy}"


def refused_loopback(line: str, context: str, policy: SandboxPolicy) -> Iterator[tuple[str, str]]:
    """Yields an explanation if a line reports that nothing listens on a port of the sandbox's own localhost (Linux).

    Args:
        line: The line.
        context: The lines before it, which name the host if the line does not.
        policy: The settings of the sandbox.
    """
    if not _REFUSED.search(line):
        return
    traceback = context[max(context.rfind("Traceback (most recent call last)"), 0) :]
    if _LOOPBACK.search(line) or (_LOOPBACK.search(traceback) and _find_host(line, context) is None):
        yield (
            "localhost",
            "Nothing listens on this port: the sandbox has its own localhost, and code can't connect to programs "
            "outside it. To allow HTTP connections to such a program, list localhost:PORT in "
            f"{setting('allowed_domains')}{_or_file(policy)}.",
        )


def _or_file(policy: SandboxPolicy) -> str:
    given = policy.settings.file is not None and policy.settings.untrusted is None
    return f", or in that file, and {restart()}" if given else ""


def _find_host(line: str, context: str) -> str | None:
    """Returns the host in an error, or else the only host in its traceback or in the output before it."""
    match = _NAMED.search(line) or _ADDRESS.search(line)
    if match is not None:
        named = _lower(next(filter(None, match.groups())))
        if not is_loopback(named) or not _PROXY.search(line):
            return named
    traceback = context[max(context.rfind("Traceback (most recent call last)"), 0) :]
    for part in (traceback, context):
        hosts = {_lower(found[1]) for found in _ADDRESS.finditer(part)}
        others = [host for host in hosts if not is_loopback(host)]
        if others:
            return others[0] if len(others) == 1 else None
    return None


def _lower(host: str) -> str:
    return host.strip("[]").lower()
