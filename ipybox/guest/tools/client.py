"""Calls tools of MCP servers through the tool server. Generated packages use it in the kernel."""

import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast, overload

from ipybox.guest.streams import mark_output
from ipybox.guest.tools.arguments import ArgumentError, as_json
from ipybox.guest.tools.http import ConnectionPool, ServerAddress
from ipybox.guest.tools.protocol import (
    DEFAULT_PORT,
    MAX_CALLS,
    MAX_CONCURRENCY,
    MAX_REQUEST_BYTES,
    RESET_PATH,
    RUN_MANY_PATH,
    RUN_PATH,
    TOKEN_VARIABLE,
    RunManyReply,
    RunReply,
)
from ipybox.guest.tools.results import checked, structured_in, value_in
from ipybox.support.errors import ToolRunnerError
from ipybox.support.sizes import format_bytes

if TYPE_CHECKING:
    from ipybox.guest.tools.tool import Tool

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["ToolRunner", "ToolRunnerError", "reset"]


class ToolRunner:
    """Runs the tools of one MCP server on a tool server.

    Any thread and the tasks of any event loop may use it, also concurrently. Connections stay open and are reused.

    Args:
        server_name: Name of the MCP server.
        server_params: Its launch parameters, with unresolved `${VAR}` placeholders.
        host: Host of the tool server.
        port: Port of the tool server.
        seal: Proof that the parameters were registered; calls from a sandboxed kernel need it.
        token: The tool server's token; by default that of `TOOL_SERVER_TOKEN`, or else the one that the tool server has
            published for this user, read again for each connection.
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
        self._pool = ConnectionPool(self._address)

    @classmethod
    def from_env(cls, server_name: str, server_params: dict[str, Any], seal: str | None = None) -> Self:
        """Returns a runner for the tool server that the environment names, as it does in a kernel."""
        address = ServerAddress.of_kernel()
        return cls(server_name, server_params, address.host, address.port, seal=seal)

    @overload
    def tool(self, tool: Callable[P, R], /) -> "Tool[P, R]": ...
    @overload
    def tool(self, tool: str, /) -> "Callable[[Callable[P, R]], Tool[P, R]]": ...
    def tool(self, tool: Any, /) -> Any:
        """Decorates a function that is only a signature, so that it calls a tool.

        The tool's name is the name of the function's module, or the given name.
        """
        from ipybox.guest.tools.tool import Tool  # imports pydantic, which a runner alone does not need

        if isinstance(tool, str):
            return partial(Tool, self, tool)
        return Tool(self, str(tool.__module__).rpartition(".")[2], tool)

    async def run(self, tool_name: str, tool_args: dict[str, Any]) -> dict[str, Any] | str | None:
        """Runs a tool and returns its structured content, or else its text, or None if the result is empty.

        Args:
            tool_name: The tool's own name.
            tool_args: JSON, or values that convert to JSON: pydantic models, dataclasses, dates, UUIDs, paths, enums,
                sets and numpy's scalars.

        Raises:
            ToolRunnerError: If JSON can't represent an argument, the call is rejected or gets no answer, or the tool
                fails; the message says why.
        """
        return value_in(await self.reply(tool_name, tool_args), tool_name)

    def run_sync(self, tool_name: str, tool_args: dict[str, Any]) -> dict[str, Any] | str | None:
        """Like `run`, but blocks the calling thread."""
        return value_in(self.reply_sync(tool_name, tool_args), tool_name)

    def run_structured(self, tool_name: str, tool_args: dict[str, Any]) -> dict[str, Any]:
        """Runs a tool and returns its structured content, blocking. Raises what `run` raises."""
        return structured_in(self.reply_sync(tool_name, tool_args), tool_name)

    def run_many(
        self, tool_name: str, params_list: list[dict[str, Any]], concurrency: int | None = None
    ) -> list[RunReply]:
        """Makes calls of one tool, decided on together, and returns their outcomes in order, blocking.

        Raises:
            ToolRunnerError: If no call was made, or the tool server's answer doesn't arrive.
            ValueError: If `concurrency` is out of range.
        """
        return _replies(self._post_sync(RUN_MANY_PATH, self._encoded_many(tool_name, params_list, concurrency)))

    async def arun_many(
        self, tool_name: str, params_list: list[dict[str, Any]], concurrency: int | None = None
    ) -> list[RunReply]:
        """Like `run_many`, but doesn't block."""
        return _replies(await self._post(RUN_MANY_PATH, self._encoded_many(tool_name, params_list, concurrency)))

    async def reset(self) -> None:
        """Like the function `reset`; an executor's tool server refuses it from kernels."""
        await reset(self._address.host, self._address.port, token=self._address.token)

    async def reply(self, tool_name: str, tool_args: dict[str, Any]) -> RunReply:
        """Runs a tool and returns the tool server's reply. Raises what `run` raises."""
        return checked(await self._post(RUN_PATH, self._encoded(tool_name, "tool_args", tool_args)), tool_name)

    def reply_sync(self, tool_name: str, tool_args: dict[str, Any]) -> RunReply:
        """Like `reply`, but blocks the calling thread."""
        return checked(self._post_sync(RUN_PATH, self._encoded(tool_name, "tool_args", tool_args)), tool_name)

    async def _post(self, path: str, body: bytes) -> Any:
        with _reaching(self._address):
            answer = await self._pool.request_async("POST", path, body)
        return _decoded(*answer)

    def _post_sync(self, path: str, body: bytes) -> Any:
        with _reaching(self._address):
            answer = self._pool.request("POST", path, body)
        return _decoded(*answer)

    def _encoded_many(self, tool_name: str, params_list: list[dict[str, Any]], concurrency: int | None) -> bytes:
        if concurrency is not None and not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency must be from 1 to {MAX_CONCURRENCY}, not {concurrency}")
        asked = f"can't make {len(params_list):,} calls to {tool_name} at once"
        if len(params_list) > MAX_CALLS:
            raise ToolRunnerError(f"{asked}: the limit is {MAX_CALLS:,}; none was sent")
        body = self._encoded(tool_name, "params_list", params_list, {"concurrency": concurrency})
        if len(body) > MAX_REQUEST_BYTES:
            size, most = format_bytes(len(body)), format_bytes(MAX_REQUEST_BYTES)
            raise ToolRunnerError(f"{asked}: they are {size}, and the limit is {most}; none was sent")
        return body

    def _encoded(self, tool_name: str, name: str, arguments: Any, others: dict[str, Any] | None = None) -> bytes:
        request = {
            "server_name": self.server_name,
            "server_params": self.server_params,
            "seal": self._seal,
            "tool_name": tool_name,
            "output_mark": mark_output(),
            **(others or {}),
        }
        try:
            return json.dumps({**request, name: arguments}, ensure_ascii=False, allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError):
            pass  # not JSON yet
        place = () if isinstance(arguments, dict) else (name,)
        try:
            return json.dumps({**request, name: as_json(cast(Any, arguments), place)}, ensure_ascii=False).encode()
        except ArgumentError as exc:
            raise ToolRunnerError(f"can't send the arguments of {tool_name}: {exc}") from None


async def reset(host: str = "localhost", port: int = DEFAULT_PORT, *, token: str | None = None) -> None:
    """Stops all MCP servers of a tool server; they start again at their next call.

    Raises:
        ToolRunnerError: If the tool server can't be reached or refuses.
    """
    address = _address(host, port, token)
    with _reaching(address):
        status, body = await ConnectionPool(address).request_async("PUT", RESET_PATH, b"")
    if status >= 400:
        raise ToolRunnerError(f"the tool server refused to reset: HTTP {status} {body.decode(errors='replace')}")


def _address(host: str, port: int, token: str | None) -> ServerAddress:
    return ServerAddress(host, port, token or os.environ.get(TOKEN_VARIABLE))


@contextmanager
def _reaching(address: ServerAddress) -> Generator[None]:
    try:
        yield
    except OSError as exc:
        # A kernel always has a tool server.
        hint = "" if TOKEN_VARIABLE in os.environ else "; outside a kernel, start a ToolServer first"
        raise ToolRunnerError(f"no response from the tool server at {address}: {exc}{hint}") from None


def _decoded(status: int, body: bytearray) -> dict[str, Any]:
    try:
        reply: object = json.loads(body)
    except ValueError:
        reply = None
    if not isinstance(reply, dict):
        raise ToolRunnerError(f"the tool server answered with HTTP {status}: {body[:500].decode(errors='replace')}")
    return cast("dict[str, Any]", reply)


def _replies(reply: RunManyReply) -> list[RunReply]:
    """Returns the replies to a batch; raises a ToolRunnerError if no call was made."""
    if "replies" not in reply:
        raise ToolRunnerError(reply.get("error", "the tool server made none of the calls"))
    return reply["replies"]
