"""What the suite starts as the client: hands the scenario on to the test's own process, which has imported all of it.

python -I -S forward.py SOCKET URL
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as test:
    test.connect(sys.argv[1])
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    test.sendall(json.dumps([scenario, context, sys.argv[2]]).encode() + b"\n")
    with test.makefile() as answer:
        sys.exit(answer.read() or None)
