"""Explains errors of file operations that the sandbox denies: the path, and the setting that allows it."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from ipybox.sandbox.denial import Denial, Reason
from ipybox.sandbox.denial_text import enumeration, shortened
from ipybox.sandbox.policy import SandboxPolicy
from ipybox.support.names import OPENABLE

_MOST_QUOTED: Final = 4

_NOT_PERMITTED: Final = "operation not permitted"

# An apostrophe within a word starts no quotation; Python writes b'...' for paths that were given as bytes.
_QUOTED: Final = re.compile(
    r"""(?<![^\Wb])(?:'([^']{1,1024})'|"([^"]{1,1024})"|‘([^’]{1,1024})’|`([^`']{1,1024})[`'])""",
)
_PATH: Final = re.compile(r"(?:^|(?<=[\s(\[=]))(?:file://)?((?:~?/|\.{1,2}/|\.\w)[^'\"]{0,1024})")


def _read_errors(policy: SandboxPolicy, path: str) -> Denial | None:
    rule = policy.read_denial(path)
    if rule is not None:
        return rule
    # In place of a protected file that does not exist, srt mounts a device, which can't be opened.
    rule = policy.write_denial(path)
    return rule if rule is not None and rule.reason is Reason.PROTECTED and not _is_closed_anyway(rule.place) else None


def _is_closed_anyway(place: str) -> bool:
    """Returns whether a file exists that this user can't read outside the sandbox either."""
    return os.path.lexists(place) and not os.access(place, os.R_OK)


def _missing(policy: SandboxPolicy, path: str) -> Denial | None:
    """Returns the denial that hides a path; but a directory that does not exist hides nothing."""
    rule = policy.read_denial(path)
    return rule if rule is not None and rule.below and os.path.isdir(rule.place) else None


def _any(policy: SandboxPolicy, path: str) -> Denial | None:
    return policy.read_denial(path) or policy.write_denial(path)


#: Texts of errors, the denial of a path that explains them, the operation, and the order of several paths in a line.
_FILE_ERRORS: Final[Iterable[tuple[str, Callable[[SandboxPolicy, str], Denial | None], str, int]]] = (
    ("read-only file system", SandboxPolicy.write_denial, "write", -1),
    ("cross-device link", SandboxPolicy.write_denial, "write", -1),
    ("permission denied", _read_errors, "open", 1),
    ("couldn't open file", _read_errors, "open", 1),
    ("no such file or directory", _missing, "open", 1),
    ("resource busy", SandboxPolicy.move_denial, "move or remove", 1),
    (_NOT_PERMITTED, _any, "open", 1),
)


#: Texts in a line, in lower case, that may report a denied operation on a file.
FILE_SIGNS: Final = tuple(error for error, *_ in _FILE_ERRORS)


def denied_path(line: str, policy: SandboxPolicy, *, macos: bool) -> Iterator[tuple[str, str]]:
    """Yields the path whose denial a line reports, and the message that explains it, if the settings deny it."""
    lowered = line.lower()
    for error, refusal, operation, order in _FILE_ERRORS:
        at = lowered.find(error)
        if at < 0 or (error == _NOT_PERMITTED and not macos):
            continue
        for path in _candidates(line, at, order):
            rule = refusal(policy, path)
            # A bare word may be anything: an entry must name it.
            if rule is not None and (rule.reason is not Reason.NOT_IN_ALLOW_WRITE or _is_path(path, line)):
                yield _explain(path, rule, operation, policy)
                return


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


def _is_path(text: str, line: str) -> bool:
    return "/" in text or text.startswith((".", "~")) or any(quote + text in line for quote in "'\"‘`")


def _explain(path: str, rule: Denial, operation: str, policy: SandboxPolicy) -> tuple[str, str]:
    apply = policy.settings.to_apply_changes
    path, entry, source, place = shortened(path), shortened(rule.entry), policy.settings.source, policy.settings.place
    if operation == "open" and rule.reason not in (Reason.DENY_READ, Reason.SECRET, Reason.INTERNAL):
        operation = "write"
    names = f"it is below {entry}, which {{}} of {source} lists" if rule.below else f"{{}} of {source} lists it"
    if not rule.below and entry != path:
        names += f" ({entry})"
    match rule.reason:
        case Reason.DENY_READ:
            because = names.format("filesystem.denyRead")
            remedy = f"To open it, list it in filesystem.allowRead of {place}, and {apply}."
        case Reason.SECRET:
            it = f"it is below {entry}, which" if rule.below else "it"
            because = f"{it} is hidden because ipybox found credentials in the workspace at startup"
            remedy = f"To open it, move the credentials elsewhere and {apply}."
        case Reason.DENY_WRITE:
            because = names.format("filesystem.denyWrite")
            remedy = f"To open it, remove that entry from {place}, and {apply}."
        case Reason.NOT_IN_ALLOW_WRITE:
            now = enumeration(
                f"the workspace {policy.workspace}" if it == "." else it for it in policy.settings.allow_write
            )
            because = f"code can write only what filesystem.allowWrite of {source} lists (now: {now})"
            remedy = f"To open it, add it to the current entries in {place}, and {apply}."
        case Reason.PROTECTED:
            it = "it" if entry == path else entry
            because = f"{it} is not writable because programs outside the sandbox read or execute its contents"
            opened = os.path.relpath(rule.place, policy.workspace)
            openable = (
                f"To open it, add {shortened(opened)} to the current entries in filesystem.allowWrite of {place}, and "
                f"{apply}."
            )
            remedy = openable if rule.entry in OPENABLE else "No setting opens it."
        case Reason.INTERNAL:
            because = f"it is below {entry}, which belongs to ipybox" if rule.below else "it belongs to ipybox"
            remedy = "No setting opens it."
    return path, f"The sandbox refused to {operation} {path}: {because}. {remedy}"
