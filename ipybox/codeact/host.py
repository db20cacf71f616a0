"""`ipybox check`: the check from the host, which must not run what lies in a workspace, in a kernel that may."""

from pathlib import Path
from typing import Any

from ipybox import ApprovalRequest, CodeExecutionResult, CodeExecutor

CELL = "from ipybox.codeact import check\nprint(check())"

#: Seconds that all imports together may take.
TIMEOUT = 120


async def check_in_kernel(workspace: Path, **confinement: Any) -> str:
    """Returns what `ipybox.codeact.check` says of a workspace, in a kernel of its own.

    Args:
        workspace: The directory that holds `gentools`, `mcptools` and `mcpparse`.
        confinement: Sandbox and limits, as `CodeExecutor` takes them.

    Raises:
        CodeExecutionError: What was imported ended the kernel, or the like.
        SandboxError: The sandbox can't start.
        TimeoutError: What was imported took too long.
    """
    said = ""
    async with CodeExecutor(working_dir=workspace, **confinement) as executor:
        async for item in executor.stream(CELL, timeout=TIMEOUT):
            match item:
                case ApprovalRequest():
                    await item.reject()  # a module that calls a tool when it is imported is told so
                case CodeExecutionResult():
                    said = "\n".join([item.text or "", *item.notices])
                case _:
                    pass
    return said
