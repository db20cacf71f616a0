"""What an agent asks about the tools of its workspace: which there are, and whether the saved ones are sound.

    source ──► library ──► card ──► search, interface ──► listing: tools()    reads and parses, imports nothing
       │          │
       └──────────┴──► gentool_rules, parser_rules ──► imported ──► verdict: check()    imports what has no faults

It runs in the kernel and on the host: standard library only, and pydantic where `check` looks at imported models.
What is in a workspace is hostile: whatever lies there is an answer's line, never a crash or a wait without end.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipybox.codeact.listing import tools
    from ipybox.codeact.verdict import check

__all__ = ["check", "tools"]

_MODULES = {"check": "ipybox.codeact.verdict", "tools": "ipybox.codeact.listing"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
