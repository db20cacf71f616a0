"""Files for kernels on the node of an engine that does not share the working directory, and files of it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ipybox.code_exec.config import ExecutorConfig

if TYPE_CHECKING:
    from ipybox.code_exec.lifecycle import KernelLifecycle
    from ipybox.engine.gateway import EngineGateway
    from ipybox.kernel_mgr.transfer.file_transfer import Download


def note_upload(config: ExecutorConfig) -> Callable[[Path], object]:
    """Returns what notes the path of an upload, so that nodes of an engine get it."""
    if config.known_engine is None:
        return lambda _: None
    from ipybox.kernel_mgr.transfer.uploads import UploadedPaths

    return UploadedPaths(config.workspace).add


async def send_uploads(config: ExecutorConfig, kernel: "KernelLifecycle") -> None:
    """Sends uploaded files to the node, if there is one; otherwise they are sent when it starts.

    Raises:
        OSError: If they can't be written there.
    """
    if config.known_engine is None or not kernel.running:
        return
    from ipybox.engine.file_sync import NOT_SENT, NOT_WRITTEN

    notices = await kernel.gateway.send_files()
    missing = [notice for notice in notices if notice.startswith((NOT_SENT, NOT_WRITTEN))]
    kernel.notices += [notice for notice in notices if notice not in missing]
    if missing:
        raise OSError(f"the upload is in {config.workspace}, but not on the node: {' '.join(missing)}")


async def read_from_node(config: ExecutorConfig, kernel: "KernelLifecycle", path: str | Path) -> "Download | None":
    """Returns a file of the node, or a directory as tar; None if code runs in the working directory, or does not run.

    Raises:
        OSError: If it can't be read there.
        ValueError: If it is too large.
    """
    if config.known_engine is None or not kernel.running:
        return None
    path = Path(path)
    if path.is_absolute() and path.is_relative_to(config.workspace):
        path = path.relative_to(config.workspace)
    return await cast("EngineGateway", kernel.gateway).read_file(str(path))
