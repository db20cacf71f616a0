"""Denials of a sandbox: `SandboxPolicy` returns them, with the part of the settings that is the reason."""

from dataclasses import dataclass
from enum import Enum, auto


class Reason(Enum):
    """The part of the settings that denies access."""

    DENY_READ = auto()
    DENY_WRITE = auto()
    #: No entry of `allowWrite` covers the path.
    NOT_IN_ALLOW_WRITE = auto()
    #: The scan of the workspace found credentials that no entry names.
    SECRET = auto()
    #: Configuration that programs outside the sandbox trust or execute.
    PROTECTED = auto()
    #: ipybox's own keys and programs; no setting opens them.
    INTERNAL = auto()


@dataclass(frozen=True)
class Denial:
    """The reason why access to a path is denied.

    Attributes:
        reason: The part of the settings.
        entry: The entry as it is written there, or the protected name; empty if no entry allows access.
        place: The path that the entry names: the denied path, or a directory above it.
        below: Whether the denied path is below `place`.
    """

    reason: Reason
    entry: str = ""
    place: str = ""
    below: bool = False
