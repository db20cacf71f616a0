"""Handles requests to the tool server: run a tool, a shell command, install a package, infer models.

`ToolServer` registers the handlers for kernels. The application can only run tools, which need no seal.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from http import HTTPStatus

from aiohttp import web

from ipybox.guest.tools.protocol import (
    INSTALL_PATH,
    MAX_PACKAGE_NAME,
    MODELS_PATH,
    RUN_PATH,
    SHELL_PATH,
    ModelsReply,
    RunReply,
    RunRequest,
    is_install_request,
    is_run_request,
    is_shell_request,
)
from ipybox.tool_exec.admission import MAX_REQUEST_BYTES, ByteBudget, RefusedError, finite, read_body
from ipybox.tool_exec.caller import ToolCaller
from ipybox.tool_exec.dispatch import denied, run_call
from ipybox.tool_exec.functions import APP_PARAMS, APP_SERVER
from ipybox.tool_exec.model_inference import MAX_SAMPLES_BYTES, infer_models
from ipybox.workspace.seal import SealVerifier

logger = logging.getLogger(__name__)

#: Larger requests are read one at a time, and those in progress share a limit of bytes.
LARGE_REQUEST_BYTES = 1 << 16
MAX_LARGE_BYTES = 4 * MAX_REQUEST_BYTES

#: Maximum bytes of a request about a shell command; a program gets less from Linux.
MAX_SHELL_BYTES = 4 << 20

#: Server name of what kernels ask for that is no tool of an MCP server, for approval and the audit log.
IPYBOX_SERVER = "ipybox"

INSTALL_TOOL, UNINSTALL_TOOL = "install_package", "uninstall_package"

Handler = Callable[[web.Request], Awaitable[web.Response]]


class KernelRequests:
    """Handles the requests of kernels, each of which carries a token from `callers`.

    Args:
        callers: Kernels by their tokens.
        seals: Verifies the parameters of MCP servers; None if kernels may choose them.
        install: Installs or removes a package; see `ToolServer`.
        shell_commands: Whether kernels ask about shell commands.
    """

    def __init__(
        self,
        callers: Mapping[str, ToolCaller],
        seals: SealVerifier | None,
        install: Callable[[str, bool], Awaitable[str]] | None,
        shell_commands: bool,
    ):
        self._callers = callers
        self._seals = seals
        self._install_package = install
        self._shell_commands = shell_commands
        self._large_requests = ByteBudget(MAX_LARGE_BYTES)
        self._large_body = asyncio.Lock()
        #: Samples are read, and models inferred, for one request at a time.
        self._inferring = asyncio.Lock()

    @property
    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        """The handlers of requests, by method and path."""
        return {
            ("POST", RUN_PATH): self._run,
            ("POST", INSTALL_PATH): self._install,
            ("POST", SHELL_PATH): self._shell,
            ("POST", MODELS_PATH): self._infer_models,
        }

    def _caller_of(self, request: web.Request) -> ToolCaller:
        return self._callers[request.headers["Authorization"].removeprefix("token ")]

    async def _run(self, request: web.Request) -> web.Response:
        caller, size = self._caller_of(request), request.content_length or 0
        large = size > LARGE_REQUEST_BYTES
        async with self._large_requests.hold(min(size, MAX_REQUEST_BYTES)) if large else nullcontext():
            try:
                async with self._large_body if large else nullcontext():
                    # Not with request.json(), because the sender can choose a codec that takes minutes.
                    call: object = json.loads(await read_body(request), parse_constant=finite, parse_float=finite)
            except RefusedError as refused:
                return denied(caller, str(refused), refused.status)
            except (ValueError, RecursionError):
                call = None
            if not is_run_request(call):
                return denied(caller, "not a tool call: see ipybox.guest.tools.protocol", HTTPStatus.BAD_REQUEST)
            if (error := self._wrong_parameters(call, caller)) is not None:
                logger.warning("refused a call to %r with unregistered server parameters", call["server_name"])
                return denied(caller, error, HTTPStatus.FORBIDDEN)
            reply = await run_call(call, caller, large=large)
        from pydantic_core import to_json  # not at startup; a tool call imports it anyway

        # Several times faster than Python's encoder, which blocks the event loop for results of many megabytes.
        return web.Response(body=to_json(reply), content_type="application/json")

    def _wrong_parameters(self, call: RunRequest, caller: ToolCaller) -> str | None:
        """Returns why a call is refused because of its server's parameters; None if it is not."""
        name, params = call["server_name"], call["server_params"]
        if name == APP_SERVER and params != APP_PARAMS and caller.functions is not None:
            # Else a server of the kernel's choice would answer calls that are approved as those of functions.
            return f"{APP_SERVER!r} stands for the application's functions and takes no server parameters"
        if self._seals is None or self._seals.accepts(name, params, call["seal"]):
            return None
        return (
            f"MCP server {name!r} is not registered in this workspace with these parameters: register it (again) from "
            "outside the sandbox"
        )

    async def _install(self, request: web.Request) -> web.Response:
        caller = self._caller_of(request)
        try:
            asked: object = json.loads(await read_body(request))
        except RefusedError as refused:
            return denied(caller, str(refused), refused.status)
        except (ValueError, RecursionError):
            asked = None
        if not is_install_request(asked):
            return denied(
                caller, f"not a package name of at most {MAX_PACKAGE_NAME} characters", HTTPStatus.BAD_REQUEST
            )
        if (install := self._install_package) is None:
            return denied(caller, "installing packages from cells is not enabled", HTTPStatus.NOT_FOUND)
        package_name, remove = asked["package_name"], asked.get("remove") is True
        call = RunRequest(
            server_name=IPYBOX_SERVER,
            server_params={},
            seal=None,
            tool_name=UNINSTALL_TOOL if remove else INSTALL_TOOL,
            tool_args={"package_name": package_name},
        )

        async def perform(*_: object) -> RunReply:
            return RunReply(content=[{"type": "text", "text": await install(package_name, remove)}])

        return web.json_response(await run_call(call, caller, perform))

    async def _shell(self, request: web.Request) -> web.Response:
        caller = self._caller_of(request)
        try:
            asked: object = json.loads(await read_body(request, MAX_SHELL_BYTES, what="the shell command is"))
        except RefusedError as refused:
            return denied(caller, str(refused), refused.status)
        except (ValueError, RecursionError):
            asked = None
        if not is_shell_request(asked):
            return denied(caller, "not a shell command: see ipybox.guest.tools.protocol", HTTPStatus.BAD_REQUEST)
        if not self._shell_commands:
            return denied(caller, "approval of shell commands is not enabled", HTTPStatus.NOT_FOUND)
        call = RunRequest(
            server_name=IPYBOX_SERVER,
            server_params={},
            seal=None,
            tool_name=asked["tool_name"],
            tool_args=asked["tool_args"],
            output_mark=asked["output_mark"],
        )

        async def perform(*_: object) -> RunReply:
            return RunReply(content=[])  # the kernel runs it

        return web.json_response(await run_call(call, caller, perform, kind="shell"))

    async def _infer_models(self, request: web.Request) -> web.Response:
        caller = self._caller_of(request)
        try:
            async with self._inferring:
                samples = await read_body(request, MAX_SAMPLES_BYTES, what="the samples are")
                return web.json_response(ModelsReply(models=await infer_models(samples)))
        except RefusedError as refused:
            return denied(caller, str(refused), refused.status)
        except ValueError as exc:
            return web.json_response(ModelsReply(error=str(exc)))
