"""Copies files between the host and the working directory of an executor, and the node of an engine."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ipybox.code_exec.config import ExecutorConfig
from ipybox.code_exec.node_files import note_upload, read_from_node, send_uploads

if TYPE_CHECKING:
    from ipybox.code_exec.lifecycle import KernelLifecycle
    from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer, TransferReport


async def upload(
    config: ExecutorConfig, kernel: "KernelLifecycle", source: Path, destination: str | Path
) -> "TransferReport":
    """Does what `CodeExecutor.upload_file` says."""
    report = await asyncio.to_thread(lambda: _transfer(config).copy_in(source, destination))
    await send_uploads(config, kernel)
    return report


async def download(
    config: ExecutorConfig, kernel: "KernelLifecycle", source: str | Path, destination: Path
) -> "TransferReport":
    """Does what `CodeExecutor.download_file` says."""
    remote = await read_from_node(config, kernel, source)
    if remote is not None:
        return await asyncio.to_thread(lambda: _transfer(config).store(remote, destination))
    return await asyncio.to_thread(lambda: _transfer(config).copy_out(source, destination))


def _transfer(config: ExecutorConfig) -> "FileTransfer":
    from ipybox.kernel_mgr.transfer.file_transfer import FileTransfer

    settings = config.settings
    return FileTransfer(
        config.workspace,
        settings=None if settings is None else lambda: settings,
        on_upload=note_upload(config),
    )
