"""The smallest engine: the node is a process of this machine."""

import os
import sys

import pytest

from ipybox.node import __name__ as node_module


@pytest.fixture(scope="session")
def command(private_directories: None) -> list[str]:
    """The command of an engine, whose node has the directories of the tests, which commands don't inherit."""
    return ["env", f"XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}", sys.executable, "-P", "-m", node_module]
