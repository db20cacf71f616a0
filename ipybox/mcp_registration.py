"""Registrations of MCP servers, some of which wait for a person to sign in.

A person may take longer than a client waits for an answer, and may have no browser here. So a registration goes on in
the background once it is known where to sign in: the request that began it is answered in time, with that address if
need be, and the same request takes it up again.

Clients that show addresses do that (MCP's elicitation by URL): before 2026-07-28 while the request is under way, and
later by repeating it. For others, the browser of this machine is opened.
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

from ipybox.errors import MCPServerError
from ipybox.oauth.browser import open_in_browser
from ipybox.printable import printable

if TYPE_CHECKING:
    from ipybox.mcp_apigen import ToolModules
    from ipybox.oauth.authenticator import SignIn

#: Seconds after which a request is answered, whether somebody has signed in or not: many clients wait for 60.
PATIENCE = 45.0

_SIGN_IN = "sign_in"

Generate = Callable[[str, dict[str, Any], "SignIn"], Awaitable["ToolModules"]]


class Registrations:
    """Registers servers, and keeps what waits for a person.

    Args:
        generate: Generates the package of a server, given its name, its parameters and what shows a person where to
            sign in.
    """

    def __init__(self, generate: Generate):
        self._generate = generate
        self._waiting: dict[str, _Registration] = {}

    async def register(
        self, server_name: str, server_params: dict[str, Any], context: Context[Any, Any]
    ) -> "ToolModules | InputRequiredResult":
        """Registers a server; returns its modules, or the question whether its user wants to sign in.

        Raises:
            MCPServerError: It fails, or nobody has signed in yet: the message says where.
        """
        key = json.dumps([server_name, server_params], sort_keys=True)
        registration = self._waiting.pop(key, None)
        if registration is None or registration.failed:
            registration = _Registration(partial(self._generate, server_name, server_params))
        try:
            question = await registration.wait(context)
        except BaseException:
            await registration.cancel()
            raise
        if registration.done:
            return registration.result()
        self._waiting[key] = registration
        if question is None:
            raise MCPServerError(f"MCP server {server_name!r}: {registration.invitation()}")
        return question

    async def aclose(self) -> None:
        """Ends those that wait."""
        for registration in self._waiting.values():
            await registration.cancel()


class _Registration:
    """One registration, from the request that began it to its result."""

    def __init__(self, generate: "Callable[[SignIn], Awaitable[ToolModules]]"):
        self._url = ""
        self._needs_person = asyncio.Event()
        self._work = asyncio.ensure_future(generate(self._show))
        # A failure is the result of a request; if none comes any more, it is nobody's.
        self._work.add_done_callback(lambda work: work.cancelled() or work.exception())

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._work.done()

    @property
    def failed(self) -> bool:
        """Whether it has ended without a result."""
        return self.done and (self._work.cancelled() or self._work.exception() is not None)

    def result(self) -> "ToolModules":
        """Returns the result, or raises why there is none."""
        return self._work.result()

    def invitation(self) -> str:
        """Returns what a person has to do."""
        return (
            f"it asks for a sign-in (OAuth). Sign in by a browser at {printable(self._url)} and then register the "
            "server again with the same arguments. If the browser runs on another machine, the last page, "
            "http://127.0.0.1…, can't load there: request its address on this machine, for example with curl"
        )

    async def wait(self, context: Context[Any, Any]) -> InputRequiredResult | None:
        """Waits until it has ended, or for as long as a request can; returns a question for the user, if there is one.

        Raises:
            MCPServerError: The user does not want to sign in.
        """
        shown = self._needs_person.is_set()
        asked = asyncio.ensure_future(self._needs_person.wait())
        try:
            await asyncio.wait({asked, self._work}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
        if self.done:
            return None
        if shown:
            self._obey((context.input_responses or {}).get(_SIGN_IN))
        elif not _shows_urls(context):
            await open_in_browser(self._url)
        elif context.session.can_send_request:
            await self._elicit(context)
        else:
            return InputRequiredResult(
                input_requests={_SIGN_IN: ElicitRequest(params=self._question())}, request_state=uuid.uuid4().hex
            )
        await asyncio.wait({self._work}, timeout=PATIENCE)
        return None

    async def cancel(self) -> None:
        """Ends it."""
        self._work.cancel()
        await asyncio.wait({self._work})

    async def _show(self, url: str) -> None:
        self._url = url
        self._needs_person.set()

    async def _elicit(self, context: Context[Any, Any]) -> None:
        question = self._question()
        assert question.elicitation_id is not None
        asking = context.session.elicit_url(question.message, question.url, question.elicitation_id, context.request_id)
        self._obey(await asking)

    def _question(self) -> ElicitRequestURLParams:
        message = "Sign in to the MCP server that is being registered"
        return ElicitRequestURLParams(message=message, url=self._url, elicitation_id=uuid.uuid4().hex)

    def _obey(self, answer: object) -> None:
        if isinstance(answer, ElicitResult) and answer.action != "accept":
            raise MCPServerError("the user does not want to sign in")


def _shows_urls(context: Context[Any, Any]) -> bool:
    capabilities = context.client_capabilities
    return (
        capabilities is not None and capabilities.elicitation is not None and capabilities.elicitation.url is not None
    )
