"""The MCP servers that the user has configured in other clients, which an agent may register by name.

The user confirms each in a form. Without forms, only servers that were imported before can be registered. Servers in
files that code can write are left to `ipybox import`, because a form doesn't show enough of them.
"""

import asyncio
import uuid
from typing import Any

from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequest, ElicitResult, InputRequiredResult
from pydantic import ValidationError

from ipybox.code_exec.config import ExecutorConfig
from ipybox.mcp_apigen.render.naming import package_name
from ipybox.mcp_client.configs.servers import ConfiguredServer, configured_servers, find_server
from ipybox.mcp_server import approver
from ipybox.mcp_server.question import ADD, FIELD, server_form
from ipybox.support.errors import MCPServerError
from ipybox.workspace.imported_secrets import ImportedSecrets

_ADDING = "add_server"


class UserServers:
    """Finds servers by name, and asks the user about each."""

    def __init__(self, config: ExecutorConfig):
        self._config = config
        #: The forms that ended a request, by the server's name: the request's state, the server, and the time.
        self._asked: dict[str, tuple[str, ConfiguredServer, float]] = {}

    async def find(self, server_name: str, context: Context[Any, Any]) -> ConfiguredServer | InputRequiredResult:
        """Returns the user's server with exactly this name, or a form to end the request with.

        Raises a ValueError if there is no such server, or an MCPServerError if the user doesn't confirm it.
        """
        workspace = self._config.workspace
        servers, _ = await asyncio.to_thread(configured_servers, workspace, self._config.writable_places)
        server = find_server([each for each in servers if not each.is_untrusted], server_name)
        imported = ImportedSecrets(workspace)
        registration = package_name(server.package), server.params
        if imported.of(*registration) is None:
            form = await self._confirm(server, context)
            if form is not None:
                return form
        imported.store(*registration, server.secrets)
        return server

    async def _confirm(self, server: ConfiguredServer, context: Context[Any, Any]) -> InputRequiredResult | None:
        """Asks the user about a server; returns a form to end the request with, or None if the user agrees."""
        clock = asyncio.get_running_loop().time
        form = server_form(server.name, server.file, server.command_line)
        ask = approver.form_sender(context)
        if ask is None:
            raise _refused(server.name, "this client can't ask its user")
        shown = clock()
        if context.session.can_send_request:
            try:
                answer: object = await ask(form)
            except (MCPError, ValidationError) as exc:
                raise _refused(server.name, "the client failed to ask its user") from exc
        else:
            state, asked, shown = self._asked.pop(server.name, ("", None, shown))
            if asked != server or state != context.request_state:
                self._asked[server.name] = (state := uuid.uuid4().hex), server, clock()
                return InputRequiredResult(input_requests={_ADDING: ElicitRequest(params=form)}, request_state=state)
            answer = (context.input_responses or {}).get(_ADDING)
        if clock() - shown < approver.READING_TIME:
            raise _refused(server.name, "the client answered on its own")
        match answer:
            case ElicitResult(action="accept", content=dict(content)) if content.get(FIELD) == ADD:
                return None
            case _:
                raise _refused(server.name, "the user did not agree")


def _refused(server_name: str, why: str) -> MCPServerError:
    return MCPServerError(
        f"MCP server {server_name!r} was not added: {why}. The user can add it with `ipybox import` in a terminal"
    )
