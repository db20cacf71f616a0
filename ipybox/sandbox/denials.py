"""Explains denials of the sandbox, from the output of code. `KernelGateway` uses it.

The sandbox denies with errors of the operating system, which don't say that a setting is the reason. So each error in a
cell's output, and that of its subprocesses, is looked up in a table. It is explained only if the settings really deny
the path or host in it. The errors of srt on Linux:

    not in allowWrite       mounted read-only           EROFS, or EXDEV for a file that is moved there
    a file of denyRead      hidden by /dev/null         EACCES
    a directory of it       hidden by an empty one      ENOENT for its content
    moved or removed        it is a mount               EBUSY
    a host                  see `denied_network`

macOS returns EPERM for all files. The text comes from the sandbox: only the parts that are found appear in messages,
and only the end of the text is searched, in time that is linear in its length.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from ipybox.sandbox.denied_network import ANY_HOST, NETWORK_SIGNS, denied_connection, enumeration, shortened
from ipybox.sandbox.path_patterns import Denial, Reason
from ipybox.sandbox.policy import SandboxPolicy
from ipybox.support.names import OPENABLE
from ipybox.support.printable import printable
from ipybox.support.way_in import for_person, restart

#: Characters at the end of the text that are searched, and the maximum lines of errors among them.
INSPECTED: Final = 64 * 1024
_MOST_LINES: Final = 100
#: Characters before an error that are searched for the address if the error does not name it.
_CONTEXT: Final = 4096
_LONGEST_LINE: Final = 4096
_MOST_EXPLANATIONS: Final = 3
_MOST_QUOTED: Final = 4

# A line of code in a traceback, as IPython and Python print it.
_CODE_LINE: Final = re.compile(r"\s*(?:-+> ?\d+|\d+) |\s*\^|    \S")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
# An apostrophe within a word starts no quotation; Python writes b'...' for paths that were given as bytes.
_QUOTED: Final = re.compile(
    r"""(?<![^\Wb])(?:'([^']{1,1024})'|"([^"]{1,1024})"|‘([^’]{1,1024})’|`([^`']{1,1024})[`'])""",
)
_PATH: Final = re.compile(r"(?:^|(?<=[\s(\[=]))(?:file://)?((?:~?/|\.{1,2}/|\.\w)[^'\"]{0,1024})")


def _read_errors(policy: SandboxPolicy, path: str) -> Denial | None:
    if (rule := policy.read_denial(path)) is not None:
        return rule
    # In place of a protected file that does not exist, srt mounts a device, which can't be opened.
    rule = policy.write_denial(path)
    if rule is None or rule.reason is not Reason.PROTECTED:
        return None
    exists_unreadable = os.path.lexists(rule.place) and not os.access(rule.place, os.R_OK)
    return None if exists_unreadable else rule


def _write_errors(policy: SandboxPolicy, path: str) -> Denial | None:
    return policy.write_denial(path) or policy.absent_entry(path)


def _missing(policy: SandboxPolicy, path: str) -> Denial | None:
    rule = policy.read_denial(path)  # but a directory that does not exist hides nothing
    return rule if rule is not None and rule.below and os.path.isdir(rule.place) else None


def _any(policy: SandboxPolicy, path: str) -> Denial | None:
    return policy.read_denial(path) or policy.write_denial(path)


#: Texts of errors in lower case, the denial of a path that explains them, the operation, the order of several paths in
#: a line, and whether only macOS means files.
_FILE_ERRORS: Final[Iterable[tuple[str, Callable[[SandboxPolicy, str], Denial | None], str, int, bool]]] = (
    ("read-only file system", _write_errors, "write", -1, False),
    ("cross-device link", _write_errors, "write", -1, False),
    ("permission denied", _read_errors, "open", 1, False),
    ("couldn't open file", _read_errors, "open", 1, False),
    ("no such file or directory", _missing, "open", 1, False),
    ("resource busy", SandboxPolicy.move_denial, "move or remove", 1, False),
    ("operation not permitted", _any, "open", 1, True),
)

#: Texts in a line, in lower case, that may report a denial.
_SIGNS: Final = (*(error for error, *_ in _FILE_ERRORS), *NETWORK_SIGNS)

#: For each reason, why a path is denied, and what the person can do about it.
_FILE_REASONS: Final = {
    Reason.DENY_READ: ("{listed}", "list it in filesystem.allowRead of {place}, and {apply}"),
    Reason.DENY_WRITE: ("{listed}", "remove that entry from {place}, and {apply}"),
    Reason.SECRET: (
        "{it} is hidden because ipybox found credentials in the workspace at startup",
        "move the credentials elsewhere and {restart}",
    ),
    Reason.NOT_IN_ALLOW_WRITE: (
        "code can write only what filesystem.allowWrite of {source} lists (now: {now})",
        "add {addition} to the current entries in filesystem.allowWrite of {place}, and {apply}",
    ),
    Reason.ABSENT: (
        "{entry} in filesystem.allowWrite of {source} did not exist when the sandbox started",
        "create it, and {restart}",
    ),
    Reason.PROTECTED: (
        "{name} is not writable because programs outside the sandbox read or execute its contents",
        "add {opened} to the current entries in filesystem.allowWrite of {place}, and {apply}",
    ),
    Reason.INTERNAL: ("{it} belongs to ipybox", ""),
}


def explain_denials(
    text: str, policy: SandboxPolicy, tool_texts: Iterable[str] = (), *, macos: bool = sys.platform == "darwin"
) -> list[str]:
    """Returns the denials of the sandbox, and the settings that allow it: one line each, in order, at most three.

    Args:
        text: The output of a cell and its subprocesses, with its traceback without colors.
        policy: The policy of the sandbox in which it ran.
        tool_texts: The results of MCP tools during the cell. MCP servers run outside of this sandbox, perhaps in their
            own sandbox, so its settings don't explain their errors.
        macos: Whether it ran on macOS.
    """
    tail = text[-INSPECTED:]
    if not may_report(tail):
        return []
    lines = _ESCAPES.sub("", tail).splitlines()
    if len(text) > INSPECTED:
        del lines[0]  # its start is missing, perhaps in the middle of a path
    of_tools = error_lines(tool_texts)
    found: dict[str, str] = {}
    errors = ((number, line) for number, line in reversed(list(enumerate(lines))) if may_report(line))
    for number, line in islice(errors, _MOST_LINES):
        line = line[max(line.find("curl: ("), 0) :]  # its error follows progress numbers on the same line
        if len(line) > _LONGEST_LINE or _CODE_LINE.match(line) or any(each in line for each in of_tools):
            continue
        before = "\n".join(lines[max(0, number - _CONTEXT) : number])[-_CONTEXT:]
        denied = [_denied_path(line, policy, macos=macos), *denied_connection(line, before, policy, macos=macos)]
        for subject, message in filter(None, denied):
            found.setdefault(subject, message)
        if len(found) > _MOST_EXPLANATIONS:
            break
    if len(found) > 1:
        found.pop(ANY_HOST, None)  # a more precise one most likely explains it
    return [printable(message) for message in list(found.values())[:_MOST_EXPLANATIONS][::-1]]


def error_lines(texts: Iterable[str]) -> set[str]:
    """Returns the lines of tools' results that may report a denial: `explain_denials` needs no others."""
    lines = (line for text in texts for line in text[-INSPECTED:].splitlines() if len(line) <= _LONGEST_LINE)
    return set(islice((line.strip() for line in lines if may_report(line)), _MOST_LINES))


def may_report(text: str) -> bool:
    """Returns whether a text may report a denial; if not, `explain_denials` finds none."""
    return any(map(text.lower().__contains__, _SIGNS))


def _denied_path(line: str, policy: SandboxPolicy, *, macos: bool) -> tuple[str, str] | None:
    """Returns the path whose denial a line reports, with the message, if the settings deny it."""
    lowered = line.lower()
    for error, refusal, operation, order, only_macos in _FILE_ERRORS:
        at = lowered.find(error)
        for path in () if at < 0 or (only_macos and not macos) else _candidates(line, at, order):
            rule = refusal(policy, path)
            # A bare word may be anything: an entry must name it.
            is_path = "/" in path or path.startswith((".", "~")) or any(quote + path in line for quote in "'\"‘`")
            if rule is not None and (is_path or rule.reason is not Reason.NOT_IN_ALLOW_WRITE):
                return path, _message(path, rule, operation, policy)
    return None


def _candidates(line: str, at: int, order: int) -> list[str]:
    """Returns the possible paths in a line with an error at a position, the likely ones first.

    These are the quoted texts. Without quotes, they are the path or last word before the error, or before an earlier
    colon, except the program's name at the start of most lines; then a path after the error.
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


def _message(path: str, rule: Denial, operation: str, policy: SandboxPolicy) -> str:
    exists = os.path.lexists(os.path.join(policy.workspace, os.path.expanduser(path)))
    settings, path, entry = policy.settings, shortened(path), shortened(rule.entry)
    if operation == "open" and rule.reason not in (Reason.DENY_READ, Reason.SECRET, Reason.INTERNAL):
        operation = "write"
    key = f"filesystem.{'denyRead' if rule.reason is Reason.DENY_READ else 'denyWrite'} of {settings.source}"
    it = f"it is below {entry}, which" if rule.below else "it"
    writable = (f"the workspace {policy.workspace}" if each == "." else each for each in settings.allow_write)
    values = {
        "addition": "it" if exists else "an existing directory that contains it",  # srt skips what does not exist
        "entry": entry,
        "it": it,
        "listed": f"{it} {key} lists" if rule.below else f"{key} lists it" + (f" ({entry})" if entry != path else ""),
        "name": "it" if entry == path else entry,
        "now": enumeration(writable),
        "opened": shortened(os.path.relpath(rule.place or ".", policy.workspace)),
        "source": settings.source,
        "place": settings.place,
        "apply": settings.to_apply_changes,
        "restart": restart(),
    }
    because, remedy = (part.format_map(values) for part in _FILE_REASONS[rule.reason])
    if not remedy or (rule.reason is Reason.PROTECTED and rule.entry not in OPENABLE):
        return f"The sandbox refused to {operation} {path}: {because}. No setting allows it."
    return f"The sandbox refused to {operation} {path}: {because}. {for_person(f'To allow it, {remedy}.')}"
