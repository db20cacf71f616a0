"""Explains what the sandbox has refused, from the text that code has put out.

The sandbox refuses with the errors of the operating system: a file is read-only, or not there, a name can't be
resolved. Neither people nor models see from them that a setting is the reason. So the host looks for such errors in a
cell's output, which includes that of subprocesses, and says which setting it was: but only if the settings really
refuse the path or host that the error names. How srt refuses on Linux:

    not in allowWrite       mounted read-only           EROFS, or EXDEV for what is moved there
    a file of denyRead      hidden by /dev/null         EACCES
    a directory of it       hidden by an empty one      ENOENT for what is in it
    moved or removed        it is a mount               EBUSY
    any host                no interface, no resolver   EAI_AGAIN, ENETUNREACH
    a host, with a proxy    the proxy refuses           403
    AF_UNIX                 seccomp                     EPERM

macOS answers EPERM wherever files are concerned. The text comes from the sandbox: what is found is only ever written
into messages, and looked for in its last part only, in time that is linear in the length of that part.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final

from ipybox.printable import printable
from ipybox.sandbox.policy import Policy, Reason, Rule, is_loopback
from ipybox.workspace.names import OPENABLE

#: Characters at the end of the text that are looked at, and the most lines of errors among them.
_INSPECTED: Final = 64 * 1024
_MOST_LINES: Final = 100
#: Characters before an error in which the address is looked for that it does not name.
_CONTEXT: Final = 4096
_LONGEST_LINE: Final = 4096
_MOST_QUOTED: Final = 4
_MOST_HINTS: Final = 3

_NOT_PERMITTED: Final = "operation not permitted"

# A line that is part of a traceback's listing of code, as IPython and Python print it.
_CODE_LINE: Final = re.compile(r"\s*(?:-+> ?\d+|\d+) |\s*\^|    \S")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")

# An apostrophe within a word opens nothing; Python writes b'...' for paths that were given as bytes.
_QUOTED: Final = re.compile(
    r"""(?<![^\Wb])(?:'([^']{1,1024})'|"([^"]{1,1024})"|‘([^’]{1,1024})’|`([^`']{1,1024})[`'])""",
)
_PATH: Final = re.compile(r"(?:^|(?<=[\s(\[=]))(?:file://)?((?:~?/|\.{1,2}/|\.\w)[^'\"]{0,1024})")


def hints(text: str, policy: Policy, *, macos: bool = sys.platform == "darwin") -> list[str]:
    """Returns what the sandbox has refused, and which setting opens it: one line each, in order, at most three.

    Args:
        text: What a cell has put out: its prints, those of its subprocesses, its traceback without colours.
        policy: The settings of the sandbox in which it ran.
        macos: Whether it ran on macOS.
    """
    tail = text[-_INSPECTED:]
    lowered = tail.lower()
    if not any(sign in lowered for sign in _SIGNS):
        return []
    if "\x1b" in tail:
        tail = _ESCAPES.sub("", tail)
    lines = tail.splitlines()
    if len(text) > _INSPECTED:
        del lines[0]  # its beginning is missing, perhaps in the middle of a path

    found: dict[str, str] = {}
    inspected = 0
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        line = line[max(line.find("curl: ("), 0) :]  # which follows the numbers of its progress on the same line
        lowered = line.lower()
        if len(line) > _LONGEST_LINE or not any(sign in lowered for sign in _SIGNS) or _CODE_LINE.match(line):
            continue
        inspected += 1
        if inspected > _MOST_LINES:
            break
        context = _before(lines, number)
        for subject, message in chain(_file(line, lowered, policy, macos), _network(line, lowered, context, policy)):
            found.setdefault(subject, message)
        if _is_socket(line, lowered, context):
            found.setdefault("a socket", _NO_SOCKET)
        if len(found) > _MOST_HINTS:
            break
    if len(found) > 1:
        found.pop(_ANY_HOST, None)  # which a more precise one most likely explains
    return [printable(message) for message in list(found.values())[:_MOST_HINTS][::-1]]


def _before(lines: list[str], number: int) -> str:
    """The end of what precedes a line."""
    first = number
    size = 0
    while first > 0 and size < _CONTEXT:
        first -= 1
        size += len(lines[first]) + 1
    return "\n".join(lines[first:number])[-_CONTEXT:]


# Files


def _read_errors(policy: Policy, path: str) -> Rule | None:
    rule = policy.reads(path)
    if rule is not None:
        return rule
    # srt keeps the name of a protected file that does not exist with a device, which can't be opened.
    rule = policy.writes(path)
    return rule if rule is not None and rule.reason is Reason.PROTECTED and not _is_closed_anyway(rule.place) else None


def _is_closed_anyway(place: str) -> bool:
    """Whether a file exists that this user can't read outside the sandbox either."""
    return os.path.lexists(place) and not os.access(place, os.R_OK)


def _missing(policy: Policy, path: str) -> Rule | None:
    """What hides a path; but a directory that does not exist hides nothing."""
    rule = policy.reads(path)
    return rule if rule is not None and rule.below and os.path.isdir(rule.place) else None


def _any(policy: Policy, path: str) -> Rule | None:
    return policy.reads(path) or policy.writes(path)


#: Texts of errors, what a path must be refused for to explain them, and which of several paths is the refused one.
_FILE_ERRORS: Final[Iterable[tuple[str, Callable[[Policy, str], Rule | None], str, int]]] = (
    ("read-only file system", Policy.writes, "write", -1),
    ("cross-device link", Policy.writes, "write", -1),
    ("permission denied", _read_errors, "open", 1),
    ("couldn't open file", _read_errors, "open", 1),
    ("no such file or directory", _missing, "open", 1),
    ("resource busy", Policy.moves, "move or remove", 1),
    (_NOT_PERMITTED, _any, "open", 1),
)


def _file(line: str, lowered: str, policy: Policy, macos: bool) -> Iterator[tuple[str, str]]:
    for error, refusal, operation, order in _FILE_ERRORS:
        at = lowered.find(error)
        if at < 0 or (error == _NOT_PERMITTED and not macos):
            continue
        for path in _candidates(line, at, order):
            rule = refusal(policy, path)
            # A bare word may be anything: an entry has to name it.
            if rule is not None and (rule.reason is not Reason.NOT_IN_ALLOW_WRITE or _is_path(path, line)):
                yield _explain(path, rule, operation, policy)
                return


def _candidates(line: str, at: int, order: int) -> list[str]:
    """What may be the path in a line with an error at a position, the likely ones first.

    It is what is quoted. If nothing is, then the path or last word in front of the error, or of a colon before that;
    but not the program's name, with which most lines begin. Or it follows the error.
    """
    quoted = [next(filter(None, match.groups())) for match in islice(_QUOTED.finditer(line), _MOST_QUOTED)]
    if quoted:
        return quoted[::order]
    parts = line[:at].rstrip(" :([-").split(": ")
    found: list[str] = []
    for part in (parts[:0:-1] or parts)[:3]:
        path = _PATH.search(part)
        found += [path[1]] if path is not None else part.split()[-1:]
    behind = _PATH.search(line, at)
    return [*found, *([behind[1]] if behind is not None else [])]


def _is_path(text: str, line: str) -> bool:
    return "/" in text or text.startswith((".", "~")) or any(quote + text in line for quote in "'\"‘`")


def _explain(path: str, rule: Rule, operation: str, policy: Policy) -> tuple[str, str]:
    opens = _file_would_open(path, rule, policy)
    path, entry, source = _short(path), _short(rule.entry), policy.settings.source
    if operation == "open" and rule.reason not in (Reason.DENY_READ, Reason.SECRET, Reason.OWN):
        operation = "write"
    names = f"it is below {entry}, which {{}} of {source} names" if rule.below else f"{{}} of {source} names it"
    if not rule.below and entry != path:
        names += f" ({entry})"
    match rule.reason:
        case Reason.DENY_READ:
            because = names.format("filesystem.denyRead")
            remedy = "To open it, list it in filesystem.allowRead, or give a sandbox_config without that entry."
        case Reason.SECRET:
            it = f"it is below {entry}, which" if rule.below else "it"
            because = f"{it} is hidden because of credentials that were found in the workspace at the start"
            remedy = "To open it, move them elsewhere and start ipybox again."
        case Reason.DENY_WRITE:
            because = names.format("filesystem.denyWrite")
            remedy = "To open it, give a sandbox_config without that entry."
        case Reason.NOT_IN_ALLOW_WRITE:
            now = _list(f"the workspace {policy.workspace}" if it == "." else it for it in policy.settings.allow_write)
            because = f"only what filesystem.allowWrite of {source} names can be written (now: {now})"
            remedy = "To open it, list it there."
        case Reason.PROTECTED:
            it = "it" if entry == path else entry
            because = f"{it} is not writable, because programs outside the sandbox read or execute what it holds"
            opened = os.path.relpath(rule.place, policy.workspace)
            openable = f"To open it, list {_short(opened)} in filesystem.allowWrite."
            remedy = openable if rule.entry in OPENABLE else "No setting opens it."
        case Reason.OWN:
            because = f"it is below {entry}, which is ipybox's own" if rule.below else "it is ipybox's own"
            remedy = "No setting opens it."
    if opens and policy.settings.untrusted is not None:
        remedy = policy.settings.untrusted.remedy
    return path, f"The sandbox refused to {operation} {path}: {because}. {remedy}"


def _file_would_open(path: str, rule: Rule, policy: Policy) -> bool:
    """Whether a file of the workspace would open a path if a person trusted it."""
    if policy.untrusted is None:
        return False
    if rule.reason is Reason.DENY_READ:
        return policy.untrusted.reads(path) is None
    return policy.untrusted.writes(path) is None


# Network

_HOST: Final = r"(\[[0-9A-Fa-f:.%]{2,60}\]|[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?)"

#: What resolvers answer; only in forms that errors have, as anybody may write these words.
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
#: What a server may have answered as well, so that the host has to be one that only the proxy can have answered for.
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

#: Stands for a host that no text names.
_ANY_HOST: Final = "any host"


def _network(line: str, lowered: str, context: str, policy: Policy) -> Iterator[tuple[str, str]]:
    by_proxy = _PROXY.search(line) is not None
    direct = not by_proxy and (_NO_NAME.search(line) or _NO_ROUTE.search(line)) is not None
    unsure = "failed to connect to" in lowered
    if not by_proxy and not direct:
        # Only where there is a proxy: otherwise it is the answer of a server inside the sandbox.
        if not policy.settings.allowed_domains or not _FORBIDDEN.search(line):
            return
        unsure = True
    host = _find_host(line, context)
    source, now = policy.settings.source, _list(policy.settings.allowed_domains)
    if host is None:
        if not unsure:
            because = f"only hosts in network.allowedDomains of {source} can be reached (now: {now})"
            yield _ANY_HOST, f"The sandbox refused the network: {because}."
        return
    if is_loopback(host):
        return
    rule = policy.host(host)
    remedy = ""
    if rule is None:
        because = f"{host} is not in network.allowedDomains of {source} (now: {now})"
        remedy = " To open it, list it there, or in allowed_domains (--allow-domain)."
    elif not rule.allowed:
        pattern = "" if rule.entry == host else f" ({_short(rule.entry)})"
        because = f"network.deniedDomains of {source} names {host}{pattern}"
    elif by_proxy:
        because = f"{_short(rule.entry)} in network.allowedDomains is not for this port or address of {host}"
    elif direct and not unsure:
        because = f"{host} is reached only through the proxy that HTTP_PROXY names, which this program did not use"
    else:
        return
    if (rule is None or not rule.allowed) and policy.untrusted is not None and policy.settings.untrusted is not None:
        would_be = policy.untrusted.host(host)
        if would_be is not None and would_be.allowed:
            remedy = f" {policy.settings.untrusted.remedy}"
    yield host, f"The sandbox refused the network: {because}.{remedy}"


def _find_host(line: str, context: str) -> str | None:
    """The host that an error is about: the one that it names, or the only one that its traceback or output names."""
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


# Sockets

_NO_SOCKET: Final = (
    "The sandbox refused a socket: there are neither Unix sockets nor raw ones in it, only TCP and UDP. "
    "No setting opens them."
)
_SOCKET_CODE: Final = (
    "socket.socket(",
    "socket.socket.__init__(",
    "AF_UNIX",
    "AF_PACKET",
    "SOCK_RAW",
    "open_unix_connection",
    "unix://",
)


def _is_socket(line: str, lowered: str, context: str) -> bool:
    if _NOT_PERMITTED not in lowered:
        return False
    if re.search(r"\bsocket(?:\(\d+, \d+, \d+\))?: operation not permitted", lowered):
        return True
    # Python's error names nothing, but the code before it does.
    return line.endswith("PermissionError: [Errno 1] Operation not permitted") and any(
        code in context for code in _SOCKET_CODE
    )


#: What a line has, in lower case, if it may tell of a refusal.
_SIGNS: Final = (
    *(error for error, *_ in _FILE_ERRORS),
    *("name resolution", "name or service not known", "no address associated", "nodename nor servname"),
    *("could not resolve host", "failed to resolve", "getaddrinfo e", "resolve host address", "lookup "),
    *("network is unreachable", "enetunreach", "failed to connect to", "403", "forbidden", "blocked-by-"),
    "blocked by network allowlist",
)


def _list(items: Iterable[str]) -> str:
    some = [_short(item) for item in items]
    return ", ".join([*some[:5], *(["…"] if len(some) > 5 else [])]) or "none"


def _short(text: str) -> str:
    """A text of one line and a bounded length, whatever the sandbox has put into it."""
    text = printable(text)
    return text if len(text) <= 300 else f"{text[:300]}…"
