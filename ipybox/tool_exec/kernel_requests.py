"""Handles kernels' requests to the tool server: tool calls, shell commands, package installation."""

import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from http import HTTPStatus
from itertools import accumulate
from typing import Any, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

from aiohttp import web

from ipybox.audit.recorder import SessionRecorder
from ipybox.guest.tools.protocol import (
    INSTALL_PATH,
    MAX_PACKAGE_NAME,
    MAX_REQUEST_BYTES,
    RUN_MANY_PATH,
    RUN_PATH,
    SHELL_PATH,
    RunManyRequest,
    RunReply,
    RunRequest,
    is_install_request,
    is_run_many_request,
    is_run_request,
    is_shell_request,
)
from ipybox.support.names import INSTALL_TOOL, OWN_NAME, UNINSTALL_TOOL
from ipybox.support.sizes import format_bytes
from ipybox.tool_exec.dispatch import APP_PARAMS, APP_SERVER, Batch, ToolCaller, encoded, run_call
from ipybox.tool_exec.http_api import ByteBudget, DeniedError, Handler, read_json

logger = logging.getLogger(__name__)

#: Bytes above which a request is large, and the maximum total of a session's concurrent large requests.
LARGE_REQUEST_BYTES = 1 << 16
MAX_LARGE_BYTES = 2 * MAX_REQUEST_BYTES

#: Maximum bytes of a shell command request: more than Linux passes to a program.
MAX_SHELL_BYTES = 4 << 20

CallsT = TypeVar("CallsT", RunRequest, RunManyRequest)


class KernelRequests:
    """Handles the requests of kernels. Unless they are `sealed`, kernels may choose the parameters of MCP servers."""

    def __init__(
        self,
        sealed: bool = False,
        install: Callable[[str, bool], Awaitable[str]] | None = None,
        shell_commands: bool = False,
    ):
        self._sealed = sealed
        self._install_package = install
        self._shell_commands = shell_commands
        self._large_requests = WeakKeyDictionary[SessionRecorder, ByteBudget]()

    @property
    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        """The handlers, by method and path."""
        return {
            ("POST", RUN_PATH): self._run,
            ("POST", RUN_MANY_PATH): self._run_many,
            ("POST", INSTALL_PATH): self._install,
            ("POST", SHELL_PATH): self._shell,
        }

    async def _run(self, request: web.BaseRequest, caller: ToolCaller) -> web.Response:
        async with self._received(request, caller, is_run_request) as (call, large):
            reply = await run_call(call, caller, large=large)
        return web.Response(body=encoded(reply), content_type="application/json")

    async def _run_many(self, request: web.BaseRequest, caller: ToolCaller) -> web.Response:
        async with self._received(request, caller, is_run_many_request) as (batch, large):
            replies = await Batch(batch, caller, large=large).run()
        return web.Response(body=b'{"replies":[%b]}' % b",".join(replies), content_type="application/json")

    @asynccontextmanager
    async def _received(
        self, request: web.BaseRequest, caller: ToolCaller, is_valid: Callable[[object], TypeGuard[CallsT]]
    ) -> AsyncGenerator[tuple[CallsT, bool]]:
        """Yields the tool calls in a request, and whether their arguments are large.

        Raises:
            DeniedError: If they are invalid, or their server is not registered.
        """
        size = request.content_length or 0
        large = size > LARGE_REQUEST_BYTES
        held = nullcontext()
        if large:
            budget = self._large_requests.setdefault(caller.recorder, ByteBudget(MAX_LARGE_BYTES))
            held = budget.hold(min(size, MAX_REQUEST_BYTES))
        async with held:
            calls = await read_json(request)
            if not is_valid(calls):
                raise DeniedError(HTTPStatus.BAD_REQUEST, "not a tool call: see ipybox.guest.tools.protocol")
            if large and not _names_small_server(calls):
                most = format_bytes(LARGE_REQUEST_BYTES)
                raise DeniedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"names and server parameters exceed {most}")
            self._check_parameters(calls, caller)
            yield calls, large

    def _check_parameters(self, call: RunRequest | RunManyRequest, caller: ToolCaller) -> None:
        """Raises a DeniedError unless the server parameters of a call are registered."""
        name, params = call["server_name"], call["server_params"]
        if name == APP_SERVER and params != APP_PARAMS and caller.functions is not None:
            # Otherwise, a server of the kernel's choice would answer calls that were approved as function calls.
            error = f"{APP_SERVER!r} stands for the application's functions and takes no server parameters"
        elif not self._sealed or (caller.registrations and caller.registrations.accepts(name, params, call["seal"])):
            return
        else:
            error = (
                f"MCP server {name!r} is not registered in this workspace with these parameters: register it (again) "
                "from outside the sandbox"
            )
        logger.warning("refused a call to %.100r with unregistered server parameters", name)
        raise DeniedError(HTTPStatus.FORBIDDEN, error)

    async def _install(self, request: web.BaseRequest, caller: ToolCaller) -> web.Response:
        body = await read_json(request)
        if not is_install_request(body):
            raise DeniedError(HTTPStatus.BAD_REQUEST, f"not a package name of at most {MAX_PACKAGE_NAME} characters")
        if (install := self._install_package) is None:
            raise DeniedError(HTTPStatus.NOT_FOUND, "installing packages from cells is not enabled")
        package_name, remove = body["package_name"], body.get("remove") is True
        call = _own_call(UNINSTALL_TOOL if remove else INSTALL_TOOL, {"package_name": package_name})

        async def perform(*_: object) -> RunReply:
            return RunReply(content=[{"type": "text", "text": await install(package_name, remove)}])

        return web.json_response(await run_call(call, caller, perform))

    async def _shell(self, request: web.BaseRequest, caller: ToolCaller) -> web.Response:
        body = await read_json(request, MAX_SHELL_BYTES, what="the shell command is")
        if not is_shell_request(body):
            raise DeniedError(HTTPStatus.BAD_REQUEST, "not a shell command: see ipybox.guest.tools.protocol")
        if not self._shell_commands:
            raise DeniedError(HTTPStatus.NOT_FOUND, "approval of shell commands is not enabled")
        call = _own_call(body["tool_name"], {**body["tool_args"]}, body["output_mark"])

        async def perform(*_: object) -> RunReply:
            return RunReply(content=[])  # the kernel runs it

        return web.json_response(await run_call(call, caller, perform, kind="shell"))


def _names_small_server(call: RunRequest | RunManyRequest) -> bool:
    """Returns whether all of a call but its arguments is small, without looking at more of it."""
    named = {name: value for name, value in call.items() if name not in ("tool_args", "params_list")}
    try:
        return all(size <= LARGE_REQUEST_BYTES for size in accumulate(map(len, json.JSONEncoder().iterencode(named))))
    except RecursionError:
        return False


def _own_call(tool_name: str, tool_args: dict[str, Any], output_mark: int = 0) -> RunRequest:
    return RunRequest(
        server_name=OWN_NAME,
        server_params={},
        seal=None,
        tool_name=tool_name,
        tool_args=tool_args,
        output_mark=output_mark,
    )
