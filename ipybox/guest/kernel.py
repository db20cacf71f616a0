"""The kernel process: IPython's kernel with ipybox's extension, and nothing of the user's own configuration.

Usage: python -P -m ipybox.guest.kernel CONNECTION_FILE PARENT_PID
"""

import json
import sys
import warnings
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from jupyter_client.jsonutil import json_default
from jupyter_client.session import json_packer
from traitlets.config import Config

from ipybox.guest.process import die_with_parent


def pack_json(message: object) -> bytes:
    """Returns a message part as JSON, also where its text holds a lone surrogate, which UTF-8 can't encode."""
    try:
        return json_packer(message)
    except UnicodeEncodeError:
        return json.dumps(message, default=json_default).encode()


def kernel_config() -> Config:
    """Returns the configuration of the kernel."""
    config: Any = Config()
    config.InteractiveShellApp.extensions = ["ipybox.guest.extension"]
    config.InteractiveShell.colors = "nocolor"
    config.HistoryManager.enabled = False
    config.Session.packer = "ipybox.guest.kernel.pack_json"
    config.IPKernelApp.log_level = "ERROR"
    return config


def main() -> None:
    """Runs the kernel until it is shut down or its gateway ends."""
    connection_file, parent_pid = sys.argv[1:]
    die_with_parent(int(parent_pid))
    # ipykernel warns about unencrypted TCP, which is used only on the loopback interface of a sandbox.
    warnings.filterwarnings("ignore", message="Kernel is running over TCP without encryption")
    app: Any = IPKernelApp.instance(config=kernel_config())  # its methods are not annotated
    app.initialize(["-f", connection_file])
    app.start()


if __name__ == "__main__":
    main()
