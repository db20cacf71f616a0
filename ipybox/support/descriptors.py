"""The number of files and sockets that this process can have open."""

import logging
import resource

logger = logging.getLogger(__name__)


def allow_descriptors(count: int) -> None:
    """Raises the soft limit of open descriptors to `count`, as far as the hard limit permits, and logs if it does not.

    Processes that this one starts inherit the limit.
    """
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
