"""What the gateway says about modules that kernels do not find imported, although the application asked for it."""

from collections.abc import Mapping, Sequence
from typing import cast

from ipybox.guest.protocol import FAILS, IMPORTING, NOT_PRELOADED, OPENS_DESCRIPTORS, STARTS_THREADS

_LATER = "kernels import it on first use instead"

_REASONS = {
    FAILS: "importing it failed; kernels try again on first use",
    STARTS_THREADS: f"importing it starts threads; {_LATER}",
    OPENS_DESCRIPTORS: f"importing it opens descriptors; {_LATER}",
    IMPORTING: "its import had not finished when this kernel started; this kernel imports it on first use",
}


def preload_notices(preload: Sequence[str], kernel: Mapping[str, object]) -> list[str]:
    """Returns a sentence for each module that is not preloaded. Of the gateway's answer, only known words are believed.

    Args:
        preload: The modules that were to be preloaded.
        kernel: The gateway's description of a kernel.
    """
    problems = kernel.get(NOT_PRELOADED)
    if not isinstance(problems, dict):
        return []
    reasons = {module: cast(dict[object, object], problems).get(module) for module in preload}
    return [
        f"{module} is not preloaded, because {_REASONS[reason]}."
        for module, reason in reasons.items()
        if isinstance(reason, str) and reason in _REASONS
    ]
