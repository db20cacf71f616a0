"""The directories of ipybox's secrets, which neither code in the sandbox nor a transfer gets at."""

from pathlib import Path

from jupyter_core.paths import jupyter_runtime_dir

from ipybox.support.state import scratch_root, state_dir


def private_directories() -> list[Path]:
    """Returns the directories with ipybox's keys, the tokens of ports, and the host's scratch directories."""
    return [state_dir(), Path(jupyter_runtime_dir()), scratch_root()]
