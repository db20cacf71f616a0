"""Explains errors of connections and sockets that the sandbox denies. `denials` uses it. The errors of srt on Linux:

any host                no interface, no resolver   EAI_AGAIN, ENETUNREACH
localhost               the sandbox's own           ECONNREFUSED
a host, with a proxy    the proxy refuses           403
AF_UNIX                 seccomp                     EPERM
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from ipybox.sandbox.policy import SandboxPolicy, is_loopback
from ipybox.support.printable import printable
from ipybox.support.way_in import for_person, setting

_HOST: Final = r"(\[[0-9A-Fa-f:.%]{2,60}\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?)"
#: Answers of resolvers; matched only in the forms of errors, because ordinary text may contain these words.
_UNKNOWN: Final = (
    r"(?:Temporary failure in name resolution|Name or service not known|No address associated with hostname"
    r"|nodename nor servname provided)"
)
_UNSURE: Final = re.compile(r"Failed to connect to \S+ port \d")
_DIRECT: Final = re.compile(
    rf"\[Errno -?\d+\] {_UNKNOWN}|ssl:\S+ \[{_UNKNOWN}|(?:ping6?|nc|telnet|line \d+): {_HOST}: {_UNKNOWN}"
    rf"|\.\.\. failed: {_UNKNOWN}|Could not resolve host|Failed to resolve '|getaddrinfo E[A-Z]"
    r"|unable to resolve host address|failed to lookup address information|dial tcp: lookup "
    r"|(?:\[Errno \d+\] |connect: |ssl:\S+ \[)[Nn]etwork is unreachable|connect ENETUNREACH"
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

_SOCKET: Final = re.compile(r"\bsocket(?:\(\d+, \d+, \d+\))?: operation not permitted", re.IGNORECASE)
_SOCKET_CODE: Final = re.compile(
    r"socket\.socket(?:\.__init__)?\(|in socket\.__init__|AF_UNIX|AF_PACKET|SOCK_RAW|open_unix_connection|unix://"
)

#: Stands for a host that no text names.
ANY_HOST: Final = "any host"

#: Texts in a line, in lower case, that may report a denied connection.
NETWORK_SIGNS: Final = (
    *("name resolution", "name or service not known", "no address associated", "nodename nor servname"),
    *("could not resolve host", "failed to resolve", "getaddrinfo e", "resolve host address", "lookup "),
    *("network is unreachable", "enetunreach", "failed to connect to", "403", "forbidden", "blocked-by-"),
    *("blocked by network allowlist", "connection refused", "econnrefused", "connect call failed"),
)


def denied_connection(line: str, before: str, policy: SandboxPolicy, *, macos: bool) -> Iterator[tuple[str, str]]:
    """Yields the host, localhost or socket whose denial a line reports, with the message, if the settings deny it.

    Args:
        line: The line.
        before: The lines before it, which name the host if the line does not.
        policy: The settings of the sandbox.
        macos: Whether it ran on macOS, where the sandbox has no localhost of its own.
    """
    settings = policy.settings
    in_file = f", or in that file, and {settings.to_apply_changes}" if settings.file and not settings.untrusted else ""
    listing = f"in {setting('allowed_domains')}{in_file}."
    if (denied := _denied_host(line, before, policy)) is not None:
        host, because, noun = denied
        remedy = f" {for_person(f'To allow {noun}, list it {listing}')}" if noun else ""
        yield host, f"The sandbox refused the network: {because}.{remedy}"
    traceback = _traceback(before)
    own = _LOOPBACK.search(line) or (_LOOPBACK.search(traceback) and _find_host(line, before) is None)
    if not macos and own and _REFUSED.search(line):
        remedy = for_person(f"To allow HTTP connections to such a program, list localhost:PORT {listing}")
        because = "the sandbox has its own localhost, and code can't connect to programs outside it"
        yield "localhost", f"Nothing listens on this port: {because}. {remedy}"
    # Python's error does not mention the socket, but the code before it does.
    by_code = line.endswith("PermissionError: [Errno 1] Operation not permitted") and _SOCKET_CODE.search(before)
    if by_code or _SOCKET.search(line):
        because = "it allows only TCP and UDP, no Unix or raw sockets"
        yield "a socket", f"The sandbox refused a socket: {because}. No setting allows them."


def _denied_host(line: str, before: str, policy: SandboxPolicy) -> tuple[str, str, str] | None:
    """Returns the denied host, the reason, and what to call it if an entry for it would open it; else an empty text."""
    by_proxy, direct = _PROXY.search(line), _DIRECT.search(line)
    # An answer of 403 counts only with a proxy: otherwise a server inside the sandbox has answered.
    unsure = _UNSURE.search(line) or (policy.settings.allowed_domains and _FORBIDDEN.search(line))
    if not (by_proxy or direct or unsure):
        return None
    host = _find_host(line, before)
    of, now = f"of {policy.settings.source}", enumeration(policy.settings.allowed_domains)
    if host is None:
        because = f"code can reach only hosts in network.allowedDomains {of} (now: {now})"
        return (ANY_HOST, because, "a host") if by_proxy or direct else None
    if is_loopback(host):
        return None
    rule = policy.host_rule(host)
    if rule is None:
        return host, f"{host} is not in network.allowedDomains {of} (now: {now})", "it"
    entry = shortened(rule.entry)
    if not rule.allowed:
        return host, f"network.deniedDomains {of} lists {host}" + (f" ({entry})" if rule.entry != host else ""), ""
    if by_proxy:
        return host, f"{entry} in network.allowedDomains doesn't cover this port or address of {host}", ""
    if direct and not unsure:
        return host, f"{host} can be reached only through the proxy in HTTP_PROXY, which this program did not use", ""
    return None


def _find_host(line: str, before: str) -> str | None:
    """Returns the host in an error, or else the only host in its traceback or in the output before it."""
    match = _NAMED.search(line) or _ADDRESS.search(line)
    if match is not None:
        named = _lower(next(filter(None, match.groups())))
        if not is_loopback(named) or not _PROXY.search(line):
            return named
    for part in (_traceback(before), before):
        hosts = {_lower(found[1]) for found in _ADDRESS.finditer(part)}
        others = [host for host in hosts if not is_loopback(host)]
        if others:
            return others[0] if len(others) == 1 else None
    return None


def _traceback(before: str) -> str:
    return before[max(before.rfind("Traceback (most recent call last)"), 0) :]


def _lower(host: str) -> str:
    return host.strip("[]").lower()


def enumeration(items: Iterable[str]) -> str:
    """Returns at most five of the items on one line, or `none`."""
    some = [shortened(item) for item in items]
    return ", ".join([*some[:5], *(["…"] if len(some) > 5 else [])]) or "none"


def shortened(text: str) -> str:
    """Returns any text from the sandbox on one line, with a bounded length."""
    text = printable(text)
    return text if len(text) <= 300 else f"{text[:300]}…"
