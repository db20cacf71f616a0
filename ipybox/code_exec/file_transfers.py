"""Copies files between the host and the working directory of an executor, which may be on the node of an engine."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ipybox.code_exec.config import ExecutorConfig

if TYPE_CHECKING:
    from ipybox.code_exec.lifecycle import KernelLifecycle
    from ipybox.kernel_mgr.transfer.file_transfer import Download, FileTransfer, TransferReport


def file_transfer(config: ExecutorConfig, allowed: Sequence[Path | str] = (".",)) -> "FileTransfer":
    """Returns transfers with directories of the workspace. Uploads are noted for nodes that don't share it.

    Raises:
        ValueError: If a directory can't be allowed.
    """
    from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer

    settings = config.require_settings if config.sandbox else None
    if config.engine is None:
        return FileTransfer(config.workspace, allowed, settings=settings)
    from ipybox.kernel_mgr.transfer.uploads import UploadedPaths

    return FileTransfer(config.workspace, allowed, settings=settings, on_upload=UploadedPaths(config.workspace).add)


async def upload(
    config: ExecutorConfig, kernel: "KernelLifecycle", source: Path, destination: str | Path
) -> "TransferReport":
    """Does what `CodeExecutor.upload_file` says."""
    report = await asyncio.to_thread(lambda: file_transfer(config).copy_in(source, destination))
    if kernel.running:
        kernel.notices += await kernel.gateway.push_files()
    return report


async def download(
    config: ExecutorConfig, kernel: "KernelLifecycle", source: str | Path, destination: Path
) -> "TransferReport":
    """Does what `CodeExecutor.download_file` says."""
    remote = await read_from_node(config, kernel, source)
    if remote is not None:
        return await asyncio.to_thread(lambda: file_transfer(config).store(remote, destination))
    return await asyncio.to_thread(lambda: file_transfer(config).copy_out(source, destination))


async def read_from_node(config: ExecutorConfig, kernel: "KernelLifecycle", path: str | Path) -> "Download | None":
    """Returns a file of the node, or a directory as tar; None if code runs in the working directory, or does not run.

    Raises:
        OSError: If it can't be read there.
        ValueError: If it is too large.
    """
    path = Path(path)
    if path.is_absolute() and path.is_relative_to(config.workspace):
        path = path.relative_to(config.workspace)
    return await kernel.gateway.read_file(str(path)) if kernel.running else None
