"""Registers remote MCP servers, which may wait for a person to sign in.

Signing in may take longer than a client waits for an answer. So once the sign-in address is known, the registration
continues in the background: the first request is answered in time, with that address if needed, and repeating the
request resumes the registration.

Clients that support it (MCP's URL elicitation) show the address, during the request or between two: see `detached`. For
other clients, ipybox opens this machine's browser.
https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation
"""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import Context
from mcp_types import ElicitRequest, ElicitRequestURLParams, ElicitResult, InputRequiredResult

from ipybox.mcp_client.oauth.sign_in import open_in_browser
from ipybox.mcp_server.detached import DetachedTask
from ipybox.support.errors import MCPServerError
from ipybox.support.printable import printable

if TYPE_CHECKING:
    from ipybox.mcp_apigen import ToolModules

#: Seconds after which a request is answered, with or without a sign-in: many clients wait for 60.
ANSWER_TIMEOUT = 45.0

_SIGN_IN = "sign_in"

_Registration = DetachedTask[ElicitRequestURLParams, "ToolModules"]


class RemoteServerRegistrar:
    """Registers remote servers, and keeps registrations that wait for a person."""

    def __init__(self) -> None:
        self._waiting: dict[str, _Registration] = {}

    async def register(
        self,
        server_name: str,
        server_params: dict[str, Any],
        context: Context[Any, Any],
        generate: Callable[..., Awaitable["ToolModules"]],
    ) -> "ToolModules | InputRequiredResult":
        """Registers a server; returns its modules, or a form that asks the user to sign in.

        `generate` generates its package, given `sign_in`; it is not called if the same registration is waiting.

        Raises an MCPServerError with the sign-in address if the user hasn't signed in when the request must end.
        """
        key = json.dumps([server_name, server_params], sort_keys=True)
        task = self._waiting.pop(key, None)
        if task is None or task.failed:
            task = _Registration(partial(_generate, generate))
        try:
            question = await _wait(task, context)
        except BaseException:
            await task.cancel()
            raise
        if task.task.done():
            return task.task.result()
        self._waiting[key] = task
        if question is None:
            assert task.form is not None
            raise MCPServerError(f"MCP server {server_name!r}: {_sign_in_message(task.form.url)}")
        return question

    async def aclose(self) -> None:
        """Cancels waiting registrations."""
        for task in self._waiting.values():
            await task.cancel()


async def _generate(generate: Callable[..., Awaitable["ToolModules"]], task: _Registration) -> "ToolModules":
    async def sign_in(url: str) -> None:
        message = "Sign in to the MCP server that is being registered"
        # Doesn't await the answer: the sign-in may succeed without it.
        task.ask(ElicitRequestURLParams(message=message, url=url, elicitation_id=uuid.uuid4().hex))

    return await generate(sign_in=sign_in)


async def _wait(task: _Registration, context: Context[Any, Any]) -> InputRequiredResult | None:
    """Waits for the registration to end, or as long as a request can; returns a form to end the request with."""
    shown = task.form
    form = shown or await task.next_form()
    if form is None or task.task.done():
        return None
    if shown is not None:
        _require_accepted((context.input_responses or {}).get(_SIGN_IN))
    elif not _shows_urls(context):
        await open_in_browser(form.url)
    elif context.session.can_send_request:
        assert form.elicitation_id is not None
        asking = context.session.elicit_url(form.message, form.url, form.elicitation_id, context.request_id)
        _require_accepted(await asking)
    else:
        state = uuid.uuid4().hex
        return InputRequiredResult(input_requests={_SIGN_IN: ElicitRequest(params=form)}, request_state=state)
    await asyncio.wait([task.task], timeout=ANSWER_TIMEOUT)
    return None


def _sign_in_message(url: str) -> str:
    return (
        f"it requires a sign-in (OAuth). Sign in with a browser at {printable(url)} and then register the server "
        "again with the same arguments. If the browser runs on another machine, the last page, "
        "http://127.0.0.1…, won't load there: open that address on this machine instead, for example with curl"
    )


def _require_accepted(answer: object) -> None:
    if isinstance(answer, ElicitResult) and answer.action != "accept":
        raise MCPServerError("the user declined to sign in")


def _shows_urls(context: Context[Any, Any]) -> bool:
    elicitation = context.client_capabilities and context.client_capabilities.elicitation
    return elicitation is not None and elicitation.url is not None
