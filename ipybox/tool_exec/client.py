"""Calls tools of MCP servers through the tool server. This is what generated packages use, in the kernel.

It imports neither the MCP SDK nor an HTTP framework.
"""

import asyncio
import json
import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast, overload

from ipybox.errors import ToolRunnerError
from ipybox.guest.marks import mark_output
from ipybox.tool_exec.content import render, show_beside_structured
from ipybox.tool_exec.exchange import Address, AsyncPool, SyncPool
from ipybox.tool_exec.protocol import (
    DEFAULT_PORT,
    HOST_VARIABLE,
    PORT_VARIABLE,
    RESET_PATH,
    RUN_PATH,
    TOKEN_VARIABLE,
    RunReply,
    RunRequest,
)

if TYPE_CHECKING:
    from ipybox.tool_exec.tool import Tool

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["ToolRunner", "ToolRunnerError", "reset"]


class ToolRunner:
    """Runs the tools of one MCP server on a tool server.

    May be used from any thread and from the tasks of any event loop, also at once. Connections are kept and
    reused.

    Args:
        server_name: Name of the MCP server.
        server_params: Its launch parameters, with unresolved `${VAR}` placeholders.
        host: Host of the tool server.
        port: Port of the tool server.
        seal: Proof that the parameters were registered; a sandboxed kernel's calls need it.
        token: The tool server's token. By default that of the environment variable `TOOL_SERVER_TOKEN`, or else
            the one that the tool server has published for this user (`ipybox.tokens`), looked up for each connection.
    """

    def __init__(
        self,
        server_name: str,
        server_params: dict[str, Any],
        host: str = "localhost",
        port: int = DEFAULT_PORT,
        *,
        seal: str | None = None,
        token: str | None = None,
    ):
        self.server_name = server_name
        self.server_params = server_params
        self._seal = seal
        self._address = _address(host, port, token)
        self._sync_pool = SyncPool(self._address)
        self._async_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncPool] = weakref.WeakKeyDictionary()

    @classmethod
    def from_env(cls, server_name: str, server_params: dict[str, Any], seal: str | None = None) -> Self:
        """Returns a runner for the tool server that the environment names, as it does in a kernel."""
        host = os.environ.get(HOST_VARIABLE, "localhost")
        port = int(os.environ.get(PORT_VARIABLE, DEFAULT_PORT))
        return cls(server_name, server_params, host, port, seal=seal)

    @overload
    def tool(self, tool: Callable[P, R], /) -> "Tool[P, R]": ...
    @overload
    def tool(self, tool: str, /) -> "Callable[[Callable[P, R]], Tool[P, R]]": ...
    def tool(self, tool: Any, /) -> Any:
        """Makes a function that calls a tool of one that is nothing but its signature; a decorator.

        The tool has the name of the function's module, or the name that is given.
        """
        from ipybox.tool_exec.tool import Tool  # with pydantic, which a mere runner does without

        if isinstance(tool, str):
            return partial(Tool, self, tool)
        return Tool(self, str(tool.__module__).rpartition(".")[2], tool)

    async def run(self, tool_name: str, tool_args: dict[str, Any]) -> dict[str, Any] | str | None:
        """Runs a tool and returns its structured content, or else its text, or None if it returned nothing.

        Raises:
            ToolRunnerError: If the call is rejected, gets no answer, or the tool fails; the message says why.
        """
        return _value(await self._reply(tool_name, tool_args), tool_name)

    def run_sync(self, tool_name: str, tool_args: dict[str, Any]) -> dict[str, Any] | str | None:
        """Does what `run` does, blocking the calling thread."""
        return _value(self._reply_sync(tool_name, tool_args), tool_name)

    def run_text(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        """Runs a tool and returns its text, blocking. Raises what `run` raises."""
        return _text(self._reply_sync(tool_name, tool_args), tool_name)

    def run_structured(self, tool_name: str, tool_args: dict[str, Any]) -> dict[str, Any]:
        """Runs a tool and returns its structured content, blocking. Raises what `run` raises."""
        return _structured(self._reply_sync(tool_name, tool_args), tool_name)

    async def arun_text(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        """Does what `run_text` does, without blocking."""
        return _text(await self._reply(tool_name, tool_args), tool_name)

    async def arun_structured(self, tool_name: str, tool_args: dict[str, Any]) -> dict[str, Any]:
        """Does what `run_structured` does, without blocking."""
        return _structured(await self._reply(tool_name, tool_args), tool_name)

    async def reset(self) -> None:
        """Stops all MCP servers of the tool server; they start again at their next call.

        Raises:
            ToolRunnerError: If the tool server does not do it, as when asked from a kernel of an executor.
        """
        await reset(self._address.host, self._address.port, token=self._address.token)

    async def _reply(self, tool_name: str, tool_args: dict[str, Any]) -> RunReply:
        loop = asyncio.get_running_loop()
        pool = self._async_pools.get(loop)
        if pool is None:
            pool = self._async_pools[loop] = AsyncPool(self._address)
        try:
            status, body = await pool.request("POST", RUN_PATH, self._encoded(tool_name, tool_args))
        except OSError as exc:
            raise _unreachable(self._address, exc) from None
        return _decoded(status, body, tool_name)

    def _reply_sync(self, tool_name: str, tool_args: dict[str, Any]) -> RunReply:
        try:
            status, body = self._sync_pool.request("POST", RUN_PATH, self._encoded(tool_name, tool_args))
        except OSError as exc:
            raise _unreachable(self._address, exc) from None
        return _decoded(status, body, tool_name)

    def _encoded(self, tool_name: str, tool_args: dict[str, Any]) -> bytes:
        request: RunRequest = {
            "server_name": self.server_name,
            "server_params": self.server_params,
            "seal": self._seal,
            "tool_name": tool_name,
            "tool_args": tool_args,
            "output_mark": mark_output(),
        }
        try:
            return json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError as exc:
            raise ToolRunnerError(f"the arguments of {tool_name} are not valid Unicode: {exc}") from None
        except ValueError as exc:
            raise ToolRunnerError(f"the arguments of {tool_name} are not valid JSON: {exc}") from None


async def reset(host: str = "localhost", port: int = DEFAULT_PORT, *, token: str | None = None) -> None:
    """Stops all MCP servers of a tool server; they start again at their next call.

    Raises:
        ToolRunnerError: If the tool server can't be reached or refuses.
    """
    address = _address(host, port, token)
    try:
        status, body = await AsyncPool(address).request("PUT", RESET_PATH, b"")
    except OSError as exc:
        raise _unreachable(address, exc) from None
    if status >= 400:
        raise ToolRunnerError(f"the tool server refused to reset: HTTP {status} {body.decode(errors='replace')}")


def _address(host: str, port: int, token: str | None) -> Address:
    return Address(host, port, token or os.environ.get(TOKEN_VARIABLE))


def _unreachable(address: Address, exc: OSError) -> ToolRunnerError:
    return ToolRunnerError(f"no answer from the tool server at {address}: {exc}")


def _decoded(status: int, body: bytes, tool_name: str) -> RunReply:
    try:
        reply: object = json.loads(body)
    except ValueError:
        reply = None
    if not isinstance(reply, dict):
        raise ToolRunnerError(f"the tool server answered with HTTP {status}: {body[:500].decode(errors='replace')}")
    checked = cast(RunReply, reply)
    if "error" in checked:
        beside = render(checked.get("content", []), tool_name, show=False)
        raise ToolRunnerError("\n".join(filter(None, (checked["error"], beside))))
    return checked


def _value(reply: RunReply, tool_name: str) -> dict[str, Any] | str | None:
    if reply.get("structured") is not None:
        return _structured(reply, tool_name)
    return render(reply.get("content", []), tool_name)


def _text(reply: RunReply, tool_name: str) -> str:
    content = reply.get("content", [])
    structured = reply.get("structured")
    if structured is not None and not any(block.get("type") == "text" for block in content):
        # To repeat it as text is what servers only "SHOULD" do.
        content = [{"type": "text", "text": json.dumps(structured, ensure_ascii=False)}, *content]
    return render(content, tool_name) or ""


def _structured(reply: RunReply, tool_name: str) -> dict[str, Any]:
    content = reply.get("content", [])
    structured = reply.get("structured")
    if structured is None:
        text = render(content, tool_name, show=False)
        raise ToolRunnerError(f"the tool has an output schema, but returned no structured content; its text: {text}")
    show_beside_structured(content, tool_name)
    return structured
