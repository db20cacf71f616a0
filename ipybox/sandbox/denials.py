"""Explains the sandbox's denials, based on a cell's output. `KernelGateway` uses it.

A denial appears as an error of the operating system, which doesn't mention the setting behind it. So each error in the
output of a cell and its subprocesses is looked up in a table. It is explained only if the settings do deny the path
in it; for the network, all settings are named. srt's denials on Linux:

    not in allowWrite       mounted read-only           EROFS, or EXDEV for a file that is moved there
    a file of denyRead      hidden by /dev/null         EACCES
    a directory of it       hidden by an empty one      ENOENT for its content
    moved or removed        it is a mount               EBUSY
    any host                no interface, no resolver   EAI_AGAIN, ENETUNREACH
    localhost               the sandbox's own           ECONNREFUSED
    a host, with a proxy    the proxy refuses           403
    AF_UNIX                 seccomp                     EPERM

macOS returns EPERM for all files. The text comes from the sandbox, so messages contain only matched parts of it, and
only the end of the text is searched, in linear time.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from ipybox.sandbox.policy import Denial, Reason, SandboxPolicy
from ipybox.support.names import OPENABLE
from ipybox.support.printable import printable
from ipybox.support.way_in import for_person, setting

#: Number of characters to search at the end of the text, and maximum number of error lines to explain.
_INSPECTED: Final = 64 * 1024
_MOST_LINES: Final = 100
#: Number of characters before an error to search for an address that the error doesn't name.
_CONTEXT: Final = 4096
_LONGEST_LINE: Final = 4096
_MOST_EXPLANATIONS: Final = 3
_MOST_QUOTED: Final = 4
_MOST_WORDS: Final = 4

# A line of code in a traceback, as IPython and Python print it.
_CODE_LINE: Final = re.compile(r"\s*(?:-+> ?\d+|\d+) |\s*\^|    \S")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
# An apostrophe within a word doesn't start a quotation. Python prints paths that are bytes as b'...'.
_QUOTED: Final = re.compile(
    r"""(?<![^\Wb])(?:'([^']{1,1024})'|"([^"]{1,1024})"|‘([^’]{1,1024})’|`([^`']{1,1024})[`'])""",
)


def _missing(policy: SandboxPolicy, path: str) -> Denial | None:
    rule = policy.read_denial(path)  # a directory that doesn't exist hides nothing
    return rule if rule is not None and rule.below and os.path.isdir(rule.place) else None


def _any(policy: SandboxPolicy, path: str) -> Denial | None:
    return policy.read_denial(path) or policy.write_denial(path)


#: Error texts in lower case, the check for a denial that explains them, the operation, and whether the error concerns
#: files only on macOS.
_FILE_ERRORS: Final[Iterable[tuple[str, Callable[[SandboxPolicy, str], Denial | None], str, bool]]] = (
    ("read-only file system", SandboxPolicy.write_denial, "write", False),
    ("cross-device link", SandboxPolicy.write_denial, "write", False),
    ("permission denied", SandboxPolicy.read_denial, "open", False),
    ("couldn't open file", SandboxPolicy.read_denial, "open", False),
    ("no such file or directory", _missing, "open", False),
    ("resource busy", _any, "move or remove", False),
    ("operation not permitted", _any, "open", True),
)

#: The explanation and the remedy for each reason.
_FILE_REASONS: Final = {
    Reason.DENY_READ: (
        "filesystem.denyRead of {source} lists {entry}",
        "list it in filesystem.allowRead of {place}, and {apply}",
    ),
    Reason.DENY_WRITE: (
        "filesystem.denyWrite of {source} lists {entry}",
        "remove that entry from {place}, and {apply}",
    ),
    Reason.NOT_IN_ALLOW_WRITE: (
        "code can write only what filesystem.allowWrite of {source} lists (now: {now})",
        "add {addition} to the current entries in filesystem.allowWrite of {place}, and {apply}",
    ),
    Reason.PROTECTED: (
        "{entry} is not writable because programs outside the sandbox read or execute its contents",
        "add {opened} to the current entries in filesystem.allowWrite of {place}, and {apply}",
    ),
    Reason.INTERNAL: ("{entry} belongs to ipybox", ""),
}

#: Parts of lines, in lower case, that report a refused connection: no resolver or interface; a proxy that refused; a
#: port on which nothing listens.
_DIRECT_ERRORS: Final = (
    *(f"{before}temporary failure in name resolution" for before in ("] ", ": ", "[")),
    *("] name or service not known", "] no address associated", "] nodename nor servname", "resolve host address"),
    *("could not resolve host", "failed to resolve '"),
    *("getaddrinfo e", "dial tcp: lookup ", "] network is unreachable", "enetunreach", "failed to connect to"),
)
_PROXY_ERRORS: Final = (
    *("tunnel connection failed: 403", "tunnel failed, response 403", "http code 403 from proxy"),
    *("proxyerror: 403", "blocked-by-", "blocked by network allowlist", "tunneling failed: forbidden"),
)
_REFUSED: Final = ("connection refused", "econnrefused", "connect call failed", "failed to connect to")

#: The addresses of this machine, which in the sandbox are the sandbox's own.
_LOOPBACK: Final = re.compile(r"(?<![\w.-])(?:localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|::1)(?![\w-])", re.IGNORECASE)

_SOCKET: Final = re.compile(r"\bsocket(?:\(\d+, \d+, \d+\))?: operation not permitted", re.IGNORECASE)
_SOCKET_CODE: Final = re.compile(
    r"socket\.socket(?:\.__init__)?\(|in socket\.__init__|AF_UNIX|AF_PACKET|SOCK_RAW|open_unix_connection|unix://"
)

#: Texts, in lower case, that may report a denial.
_SIGNS: Final = (*(error for error, *_ in _FILE_ERRORS), *_DIRECT_ERRORS, *_PROXY_ERRORS, *_REFUSED)


def explain_denials(
    text: str, policy: SandboxPolicy, tool_texts: Iterable[str] = (), *, macos: bool = sys.platform == "darwin"
) -> list[str]:
    """Returns up to three explanations of denials, in order: one line each, with the setting that allows the access.

    Args:
        text: The output of a cell and its subprocesses, including an uncolored traceback.
        tool_texts: The results of MCP tools that the cell called. Their errors aren't explained, because MCP servers
            run outside this sandbox, perhaps in their own.
    """
    tail = text[-_INSPECTED:]
    if not _may_report(tail):
        return []
    lines = _ESCAPES.sub("", tail).splitlines()
    if len(text) > _INSPECTED:
        del lines[0]  # the cut may be in the middle of a path
    of_tools = _error_lines(tool_texts)
    found: dict[str, str] = {}
    errors = ((number, line) for number, line in reversed(list(enumerate(lines))) if _may_report(line))
    for number, line in islice(errors, _MOST_LINES):
        line = line[max(line.find("curl: ("), 0) :]  # the error follows progress numbers on the same line
        if len(line) > _LONGEST_LINE or _CODE_LINE.match(line) or any(each in line for each in of_tools):
            continue
        before = "\n".join(lines[max(0, number - _CONTEXT) : number])[-_CONTEXT:]
        denied = _denied_path(line, policy, macos=macos), _denied_connection(line, before, policy, macos=macos)
        for subject, message in filter(None, denied):
            found.setdefault(subject, message)
        if len(found) > _MOST_EXPLANATIONS:
            break
    return [printable(message) for message in list(found.values())[:_MOST_EXPLANATIONS][::-1]]


def _error_lines(texts: Iterable[str]) -> set[str]:
    lines = (line for text in texts for line in text[-_INSPECTED:].splitlines() if len(line) <= _LONGEST_LINE)
    return set(islice((line.strip() for line in lines if _may_report(line)), _MOST_LINES))


def _may_report(text: str) -> bool:
    return _has(text.lower(), _SIGNS)


def _has(lowered: str, parts: Iterable[str]) -> bool:
    return any(map(lowered.__contains__, parts))


def _denied_path(line: str, policy: SandboxPolicy, *, macos: bool) -> tuple[str, str] | None:
    """Returns the path whose denial a line reports, and the message, if the settings deny the path."""
    lowered = line.lower()
    for error, refusal, operation, only_macos in _FILE_ERRORS:
        before, found, behind = lowered.partition(error)
        if not found or (only_macos and not macos):
            continue
        quoted = [next(filter(None, match.groups())) for match in islice(_QUOTED.finditer(line), _MOST_QUOTED)]
        for path in quoted or _words(line[: len(before)], line[len(line) - len(behind) :]):
            rule = refusal(policy, path)
            # A bare word may be anything: an entry must name it.
            is_path = quoted or "/" in path or path.startswith((".", "~"))
            if rule is not None and (is_path or rule.reason is not Reason.NOT_IN_ALLOW_WRITE):
                return path, _message(path, rule, operation, policy)
    return None


def _words(before: str, behind: str) -> list[str]:
    """Returns the words that may be the path of an error: the last ones before it, and the first one behind it.

    A program's name at the start isn't one, unless it is the only word.
    """
    words = before.split()
    return [word.strip("()[]:,;-") for word in [*(words[:0:-1] or words)[:_MOST_WORDS], *behind.split()[:1]]]


def _message(path: str, rule: Denial, operation: str, policy: SandboxPolicy) -> str:
    if operation == "open" and rule.reason not in (Reason.DENY_READ, Reason.INTERNAL):
        operation = "write"
    settings = policy.settings
    exists = os.path.lexists(os.path.join(policy.workspace, os.path.expanduser(path)))
    writable = (f"the workspace {policy.workspace}" if each == "." else each for each in settings.allow_write)
    values = {
        "addition": "it" if exists else "an existing directory that contains it",  # srt skips entries that don't exist
        "entry": _shortened(rule.entry),
        "now": _enumeration(writable),
        "opened": _shortened(os.path.relpath(rule.place or ".", policy.workspace)),
        "source": settings.source,
        "place": settings.place,
        "apply": settings.to_apply_changes,
    }
    because, remedy = (part.format_map(values) for part in _FILE_REASONS[rule.reason])
    can_open = remedy and (rule.reason is not Reason.PROTECTED or rule.entry in OPENABLE)
    advice = for_person(f"To allow it, {remedy}.") if can_open else "No setting allows it."
    return f"The sandbox refused to {operation} {_shortened(path)}: {because}. {advice}"


def _denied_connection(line: str, before: str, policy: SandboxPolicy, *, macos: bool) -> tuple[str, str] | None:
    """Returns what a line reports as denied, the network or a socket, and the message, if the sandbox denies it."""
    lowered = line.lower()
    own = _LOOPBACK.search(line)
    if _has(lowered, _PROXY_ERRORS) or (_has(lowered, _DIRECT_ERRORS) and not own):
        return "the network", _network_message(policy)
    traceback = before[max(before.rfind("Traceback (most recent call last)"), 0) :]
    # On macOS, the sandbox shares the host's localhost.
    if _has(lowered, _REFUSED) and not macos and (own or _LOOPBACK.search(traceback)):
        because = "the sandbox has its own localhost, and code can't connect to programs outside it"
        remedy = for_person(f"To allow HTTP connections to such a program, list localhost:PORT {_listing(policy)}.")
        return "localhost", f"Nothing listens on this port: {because}. {remedy}"
    # Python's error doesn't mention a socket, but the code in the traceback does.
    by_code = line.endswith("PermissionError: [Errno 1] Operation not permitted") and _SOCKET_CODE.search(before)
    if by_code or _SOCKET.search(line):
        because = "it allows only TCP and UDP, no Unix or raw sockets"
        return "a socket", f"The sandbox refused a socket: {because}. No setting allows them."
    return None


def _network_message(policy: SandboxPolicy) -> str:
    settings = policy.settings
    but = ", except those in network.deniedDomains" if settings.denied_domains else ""
    proxy = ", through the proxy in HTTP_PROXY" if settings.has_network else ""
    hosts = f"hosts in network.allowedDomains of {settings.source} (now: {_enumeration(settings.allowed_domains)})"
    remedy = for_person(f"To allow a host, list it {_listing(policy)}.")
    return f"The sandbox refused the network: code can reach only {hosts}{but}{proxy}. {remedy}"


def _listing(policy: SandboxPolicy) -> str:
    settings = policy.settings
    in_file = f", or in that file, and {settings.to_apply_changes}" if settings.file and not settings.untrusted else ""
    return f"in {setting('allowed_domains')}{in_file}"


def _enumeration(items: Iterable[str]) -> str:
    some = [_shortened(item) for item in items]
    return ", ".join([*some[:5], *(["…"] if len(some) > 5 else [])]) or "none"


def _shortened(text: str) -> str:
    text = printable(text)
    return text if len(text) <= 300 else f"{text[:300]}…"
