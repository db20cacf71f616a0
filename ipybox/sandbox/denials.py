"""Explains denials of the sandbox, from the output of code. `KernelGateway` uses it.

The sandbox denies with errors of the operating system: a file is read-only, or does not exist, a name can't be
resolved. They show neither people nor models that a setting is the reason. So the application searches a cell's
output, which includes that of subprocesses, for such errors, and names the setting: but only if the settings really
deny the path or host in the error. Denials of srt on Linux:

    not in allowWrite       mounted read-only           EROFS, or EXDEV for a file that is moved there
    a file of denyRead      hidden by /dev/null         EACCES
    a directory of it       hidden by an empty one      ENOENT for its content
    moved or removed        it is a mount               EBUSY
    any host                no interface, no resolver   EAI_AGAIN, ENETUNREACH
    localhost               the sandbox's own           ECONNREFUSED
    a host, with a proxy    the proxy refuses           403
    AF_UNIX                 seccomp                     EPERM

macOS returns EPERM for all files. The text comes from the sandbox: the parts that are found only appear in messages,
and only the end of the text is searched, in time that is linear in its length.
"""

import re
import sys
from collections.abc import Iterable
from itertools import chain, islice
from typing import Final

from ipybox.sandbox.denied_hosts import ANY_HOST, NETWORK_SIGNS, denied_host, refused_loopback
from ipybox.sandbox.denied_paths import FILE_SIGNS, denied_path
from ipybox.sandbox.denied_sockets import NO_SOCKET, is_denied_socket
from ipybox.sandbox.policy import SandboxPolicy
from ipybox.support.printable import printable

#: Characters at the end of the text that are searched, and the maximum lines of errors among them.
INSPECTED: Final = 64 * 1024
_MOST_LINES: Final = 100
#: Characters before an error that are searched for the address if the error does not name it.
_CONTEXT: Final = 4096
_LONGEST_LINE: Final = 4096
_MOST_EXPLANATIONS: Final = 3

# A line of code in a traceback, as IPython and Python print it.
_CODE_LINE: Final = re.compile(r"\s*(?:-+> ?\d+|\d+) |\s*\^|    \S")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")

#: Texts in a line, in lower case, that may report a denial. The text for sockets is one of those for files.
_SIGNS: Final = (*FILE_SIGNS, *NETWORK_SIGNS)


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
    if "\x1b" in tail:
        tail = _ESCAPES.sub("", tail)
    lines = tail.splitlines()
    if len(text) > INSPECTED:
        del lines[0]  # its start is missing, perhaps in the middle of a path

    of_tools = error_lines(tool_texts)
    found: dict[str, str] = {}
    inspected = 0
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        line = line[max(line.find("curl: ("), 0) :]  # its error follows progress numbers on the same line
        if len(line) > _LONGEST_LINE or not may_report(line) or _CODE_LINE.match(line):
            continue
        inspected += 1
        if inspected > _MOST_LINES:
            break
        if any(each in line for each in of_tools):
            continue
        context = _before(lines, number)
        loopback = () if macos else refused_loopback(line, context, policy)
        for subject, message in chain(
            denied_path(line, policy, macos=macos), denied_host(line, context, policy), loopback
        ):
            found.setdefault(subject, message)
        if is_denied_socket(line, context):
            found.setdefault("a socket", NO_SOCKET)
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
    lowered = text.lower()
    return any(sign in lowered for sign in _SIGNS)


def _before(lines: list[str], number: int) -> str:
    """Returns the end of the text before a line."""
    first = number
    size = 0
    while first > 0 and size < _CONTEXT:
        first -= 1
        size += len(lines[first]) + 1
    return "\n".join(lines[first:number])[-_CONTEXT:]
