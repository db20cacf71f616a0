"""Registers MCP servers for a client, whose user may have to answer before, during and after that.

The user confirms a server that another client is configured with, unless it was imported before. Servers in files that
code can write are left to `ipybox import`, because a form doesn't show enough of them.

Signing in to a remote server may take longer than a client waits for an answer. So once the sign-in address is known,
the registration continues in the background: the first request is answered in time, with that address if needed, and
repeating the request resumes the registration.

Policies with hints need the user's agreement to the tools that run without asking: see `agreement`.
"""

import asyncio
import json
from contextlib import suppress
from functools import partial
from typing import Any

from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult, InputRequiredResult
from pydantic import ValidationError

from ipybox.mcp_apigen.render.naming import package_name
from ipybox.mcp_client.configs.servers import ConfiguredServer, configured_servers, find_server
from ipybox.mcp_server import approver
from ipybox.mcp_server.agreement import Ask, agreed
from ipybox.mcp_server.detached import DetachedTask, DetachedTasks, client_identity, shows_forms
from ipybox.mcp_server.progress import Progress
from ipybox.mcp_server.question import ADD, FIELD, server_form
from ipybox.mcp_server.services import WorkspaceServices
from ipybox.support.errors import MCPServerError
from ipybox.support.names import MCPTOOLS
from ipybox.support.printable import printable
from ipybox.workspace.seal import ImportedSecrets

#: Seconds after which a request is answered, with or without a sign-in: many clients wait for 60.
ANSWER_TIMEOUT = 45.0

#: Seconds until a form expires.
FORM_TIMEOUT = 60.0


class UnansweredError(Exception):
    """A form got no answer from a person; the message says why."""


class Registration(DetachedTask[str]):
    """The registration of one server; its result is what the agent reads."""

    #: Where the user has to sign in.
    sign_in_url: str | None = None

    async def sign_in(self, url: str) -> None:
        """Has the user shown where to sign in, without waiting for an answer; ends if the user declines."""
        self.sign_in_url, self.patience = url, ANSWER_TIMEOUT
        message = "Sign in to the MCP server that is being registered"
        self.ask(ElicitRequestURLParams(message=message, url=url)).add_done_callback(self._end_if_declined)

    def _end_if_declined(self, answer: "asyncio.Future[ElicitResult]") -> None:
        if answer.exception() is None and answer.result().action != "accept":
            self.task.cancel()

    async def content(
        self, context: Context[Any, Any], services: WorkspaceServices, form: ElicitRequestFormParams
    ) -> dict[str, Any]:
        """Returns what the user enters in a form; raises an UnansweredError if no person does."""
        if not shows_forms(context):
            raise UnansweredError("this client can't ask its user")
        clock, client = asyncio.get_running_loop().time, approver.FormClient()
        if services.approve != "auto":  # the user may be looking at a form about a call
            client = services.opened_approver().client(client_identity(context))
        try:
            async with self.turn(client.turn), asyncio.timeout(FORM_TIMEOUT):
                shown = clock()
                client.withdrawn = True
                answer = await self.ask(form)
                client.withdrawn = False
        except TimeoutError as exc:
            raise UnansweredError("the form expired") from exc
        except (MCPError, ValidationError) as exc:
            raise UnansweredError("the client failed to ask its user") from exc
        if clock() - shown < approver.READING_TIME:
            raise UnansweredError("the client answered on its own")
        if answer.action != "accept":
            raise UnansweredError("the user did not agree")
        return dict(answer.content or {})


class Registrations:
    """Registers servers, and keeps registrations that wait for a person."""

    def __init__(self, services: WorkspaceServices):
        self._services = services
        self._tasks = DetachedTasks[Registration]()
        #: Registrations that wait for a sign-in, by the arguments of the request.
        self._signing_in: dict[str, Registration] = {}

    async def register(
        self,
        server_name: str,
        server_params: dict[str, Any],
        progress: Progress | None,
        context: Context[Any, Any],
    ) -> str | InputRequiredResult:
        """Registers a server; returns what changed, or a form for the user to end the request with.

        Raises an MCPServerError with the sign-in address if the user hasn't signed in when the request must end.
        """
        key = json.dumps([server_name, server_params], sort_keys=True)
        earlier = self._signing_in.pop(key, None)
        task = None if earlier is None or earlier.failed else earlier
        if context.request_state is not None:
            task = self._tasks.resumed(context) or task
        if task is None:
            task = Registration(partial(self._registered, server_name, server_params, progress, context))
        try:
            form = await self._tasks.attend(task, context)
        except BaseException:
            await task.cancel()
            raise
        if task.task.cancelled():
            raise MCPServerError("the user declined to sign in")
        if task.task.done():
            return task.task.result()
        if task.sign_in_url is not None:
            self._signing_in[key] = task
        if form is None:
            raise MCPServerError(f"MCP server {server_name!r}: {_sign_in_message(task.sign_in_url or '')}")
        return form

    async def aclose(self) -> None:
        """Cancels waiting registrations."""
        await self._tasks.aclose()
        for task in self._signing_in.values():
            await task.cancel()

    async def _registered(
        self,
        server_name: str,
        server_params: dict[str, Any],
        progress: Progress | None,
        context: Context[Any, Any],
        task: Registration,
    ) -> str:
        # The SDK is loaded at this point; the generator is not.
        from ipybox.mcp_apigen import generate_mcp_sources

        services, config = self._services, self._services.config
        ask = partial(task.content, context, services)
        if not server_params:
            server = await self._configured(server_name, ask)
            server_name, server_params = server.package, server.params
        modules = await generate_mcp_sources(
            server_name,
            server_params,
            config.workspace / MCPTOOLS,
            places=config.writable_places,
            variables=config.placeholder_values(),
            sign_in=task.sign_in,
            audit=services.opened_audit(),
            connect_timeout=services.register_timeout,
            on_progress=None if progress is None else lambda line: progress.note(f"{line}\n"),
        )
        if modules.new or modules.unknown:
            lines = [*modules.warnings(), *modules] or ["The server has no tools."]
        else:  # the agent may already know the tools
            unchanged = len(modules) - len(modules.added) - len(modules.changed)
            listing = f"{MCPTOOLS}/{modules.server_name}/__init__.py"
            lines = [*modules.warnings(), f"unchanged: {unchanged} tools, see {listing}"]
        if services.approve != "auto" and services.opened_approver().policy.uses_hints:
            record = modules.registration
            with suppress(UnansweredError):
                record = await agreed(modules.server_name, record, ask)
            unasked = len(record.unasked)
            lines.insert(0, f"{record.split}; {unasked} {'runs' if unasked == 1 else 'run'} without asking")
        return "\n".join(lines)

    async def _configured(self, server_name: str, ask: Ask) -> ConfiguredServer:
        """Returns the user's server with exactly this name, confirmed by the user or imported before."""
        workspace = self._services.config.workspace
        servers, _ = await asyncio.to_thread(configured_servers, workspace, self._services.config.writable_places)
        server = find_server([each for each in servers if not each.is_untrusted], server_name)
        imported = ImportedSecrets(workspace)
        registration = package_name(server.package), server.params
        if imported.of(*registration) is None:
            try:
                content = await ask(server_form(server.name, server.file, server.command_line))
                if content.get(FIELD) != ADD:
                    raise UnansweredError("the user did not agree")
            except UnansweredError as exc:
                raise MCPServerError(
                    f"MCP server {server_name!r} was not added: {exc}. "
                    "The user can add it with `ipybox import` in a terminal"
                ) from exc
        imported.store(*registration, server.secrets)
        return server


def _sign_in_message(url: str) -> str:
    return (
        f"it requires a sign-in (OAuth). Sign in with a browser at {printable(url)} and then register the server "
        "again with the same arguments. If the browser runs on another machine, the last page, "
        "http://127.0.0.1…, won't load there: open that address on this machine instead, for example with curl"
    )
