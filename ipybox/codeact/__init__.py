"""How an agent finds, checks and saves the tools in a workspace.

    source ──► library ──► card ──► search, interface ──► listing: tools()    reads and parses, imports nothing
       │          │
       │          └──► suggestion: suggest_parser()                            writes, in a kernel only
       └──────────┴──► imported ──► rules ──► checker: check()    imports the code of the workspace

This package runs in the kernel and on the host: standard library only, and pydantic if `check` imports models. The
workspace may be hostile: at worst, its content adds a line to an answer, but never causes a crash or an endless wait.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ipybox.support.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ipybox.codeact.checker import check
    from ipybox.codeact.listing import tools
    from ipybox.codeact.suggestion import suggest_parser

__all__ = ["check", "suggest_parser", "tools"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ipybox.codeact.checker": ("check",),
        "ipybox.codeact.listing": ("tools",),
        "ipybox.codeact.suggestion": ("suggest_parser",),
    },
    import_module,
)
