"""This process's open files and sockets, and their limit."""

import logging
import os
import resource
import sys

logger = logging.getLogger(__name__)

#: Open files and sockets of the server, and of each session: engine pipes, connections to and from the kernel, and MCP
#: servers.
OWN_DESCRIPTORS = 256
SESSION_DESCRIPTORS = 24


def allow_descriptors(count: int) -> None:
    """Raises the soft limit of open descriptors to `count`, or logs that the hard limit does not permit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return
    allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    except (OSError, ValueError):  # macOS has another limit
        allowed = soft
    if allowed < count:
        logger.warning("this process may need %d open files, and the limit is %d: raise it (ulimit -n)", count, allowed)


def open_standard_streams() -> None:
    """Opens closed standard streams, whose numbers other files would get, and makes any text printable."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r"))
        if number:
            getattr(sys, name).reconfigure(errors="backslashreplace")
