"""The decision on a tool call, as approvers make it and the audit log records it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ApprovalDecision:
    """The decision on a call; it is true if the call is accepted.

    Attributes:
        accepted: Whether it may run.
        by: The decider: `auto`, a `rule`, a `user`, a `client` without its user, the `application`, `timeout`,
            `nobody`, or a name that an application gives.
        reason: The reason, such as the rule's file and line; None without a reason.
    """

    accepted: bool
    by: str
    reason: str | None = None

    def __bool__(self) -> bool:
        # `if await request.decided()` must not accept a rejected call.
        return self.accepted
