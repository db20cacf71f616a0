"""The exception of the launcher."""

from ipybox.support.errors import IpyboxError


class DockerError(IpyboxError):
    """ipybox can't be run in a container; the message says why, and what to do."""
