"""The transfer of files between the host and the working directory of an executor."""

from typing import TYPE_CHECKING

from ipybox.code_exec.config import ExecutorConfig

if TYPE_CHECKING:
    from ipybox.workspace.transfer.file_transfer import FileTransfer


def file_transfer(config: ExecutorConfig) -> "FileTransfer":
    """Returns what copies files to and from the working directory.

    Raises:
        ValueError: If the kernels are those of a Jupyter server.
    """
    if config.server is not None:
        raise ValueError("files are not copied to or from kernels of a Jupyter server: use the server's own means")
    from ipybox.workspace.transfer.file_transfer import FileTransfer

    settings = config.settings
    return FileTransfer(config.workspace, settings=None if settings is None else lambda: settings)
