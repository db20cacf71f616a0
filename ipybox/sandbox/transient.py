"""Failures of srt that the next start usually does not meet, for those that start it: the kernel gateway and pip.

srt gives its own programs one second to listen, and ends if they take longer. It looks for the files that it hides or
protects, and bubblewrap then mounts them: one that is removed in between makes it fail.
https://github.com/anthropic-experimental/sandbox-runtime
"""

import re

#: How often something is started in the sandbox before a failure counts as lasting.
SANDBOX_STARTS = 4

#: The cause of what takes too long.
BUSY = "the machine may be busy"

_TOO_LATE = "Failed to create bridge sockets"

#: What bubblewrap says of a file or directory to mount that is not there.
_REMOVED = re.compile(
    r"bwrap: Can't (?:find source path .*: No such file or directory|"
    r"(?:create file at|mkdir(?: parents for)?) .*: Read-only file system)"
)


def transient_cause(output: str) -> str | None:
    """Returns a clause that says why srt failed with this output, or None if the next start would fail, too."""
    if _TOO_LATE in output:
        return BUSY
    if _REMOVED.search(output):
        return "a file that the sandbox hides or protects may have just been removed"
    return None
