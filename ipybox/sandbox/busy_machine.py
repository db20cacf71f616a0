"""What a busy machine does to srt, for those that start it: the kernel gateway and pip.

srt gives its own programs one second to listen, and ends if they take longer. The next start usually succeeds.
https://github.com/anthropic-experimental/sandbox-runtime
"""

#: How often something is started in the sandbox before the machine counts as too busy.
SANDBOX_STARTS = 4

_TOO_BUSY = "Failed to create bridge sockets"


def started_too_late(output: str) -> bool:
    """Returns whether the output of srt says that its programs took too long to listen."""
    return _TOO_BUSY in output
