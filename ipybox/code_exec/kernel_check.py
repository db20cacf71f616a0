"""`ipybox check`: runs the check in a kernel, because the host must not run the code of a workspace."""

from pathlib import Path
from typing import Any

from ipybox.code_exec.executor import CodeExecutionResult, CodeExecutor
from ipybox.tool_exec.approval.request import ApprovalRequest

CELL = "from ipybox.codeact import check\nprint(check())"

#: Seconds that all imports together may take.
TIMEOUT = 120


async def check_in_kernel(workspace: Path, **options: Any) -> str:
    """Returns what `ipybox.codeact.check` says of a workspace, in a kernel of its own.

    Args:
        workspace: The directory that holds `gentools`, `mcptools` and `mcpparse`.
        options: Options of `CodeExecutor`.

    Raises:
        CodeExecutionError: If imported code ended the kernel, or the like.
        SandboxError: If the sandbox can't start.
        TimeoutError: If the imports took too long.
    """
    said = ""
    async with CodeExecutor(working_dir=workspace, **options) as executor:
        async for item in executor.stream(CELL, timeout=TIMEOUT):
            match item:
                case ApprovalRequest():
                    await item.reject()  # a module must not call tools when it is imported
                case CodeExecutionResult():
                    said = "\n".join([item.text or "", *item.notices])
                case _:
                    pass
    return said
