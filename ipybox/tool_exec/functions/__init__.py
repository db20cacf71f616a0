"""Functions of the application as tools, which code in a kernel calls like the tools of an MCP server named `app`.

pydantic makes the schemas and checks the values. `func_metadata` of the MCP SDK does the same, but it is internal to
the SDK's server, takes a second to import, and accepts what a tool can't have until the first call.
"""

from typing import Any

#: The name of the server in generated packages, approval requests, policies and the audit log.
APP_SERVER = "app"

#: Its parameters, which no MCP server has: nothing is started.
APP_PARAMS: dict[str, Any] = {}
