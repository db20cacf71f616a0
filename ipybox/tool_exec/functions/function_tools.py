"""The functions that an application passes, as tools: their definitions, and their calls."""

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from threading import BoundedSemaphore
from typing import Any

from pydantic import ValidationError

from ipybox.guest.tools.protocol import RunReply
from ipybox.support.daemon_thread import in_daemon_thread
from ipybox.support.errors import ToolRunnerError
from ipybox.tool_exec.functions.signature import (
    ResultType,
    ToolSchema,
    arguments_adapter,
    problems,
    resolved_signature,
    tool_name,
)

logger = logging.getLogger(__name__)


class FunctionTool:
    """A function as a tool.

    Args:
        function: A function or method, sync or async, whose parameters and result have types.

    Attributes:
        name: The name of the function.
        description: Its docstring, if any.
        input_schema: The schema of its arguments.
        output_schema: The schema of its result; None if that is text.

    Raises:
        ValueError: If the function can't be a tool; the message names it, and the parameter.
    """

    def __init__(self, function: Callable[..., Any]):
        self.name = tool_name(function)
        self.description = inspect.getdoc(function)
        signature = resolved_signature(function)
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._arguments = arguments_adapter(signature)
        self._result = ResultType(signature.return_annotation)
        self.input_schema = self._arguments.json_schema(schema_generator=ToolSchema)
        self.output_schema = self._result.schema

    async def call(self, arguments: dict[str, Any], threads: BoundedSemaphore) -> RunReply:
        """Calls the function, and returns the reply to code.

        An async function is cancelled with the caller. A sync one, which nothing can cancel, then runs on to its end.

        Args:
            arguments: The arguments as code sent them. They are checked before the call.
            threads: Counts the threads of sync functions, each until its function returns.

        Raises:
            ToolRunnerError: If the arguments don't fit, the function raises, its result is not JSON of its type, or too
                many threads run.
        """
        with self._failures():
            checked = self._checked(arguments)
            if self._is_async:
                value = await self._function(**checked)
            else:
                value = await in_daemon_thread(partial(self._run, checked, threads), f"ipybox-{self.name}")
            return self._reply(value)

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            # Strict, and as JSON: the function gets what was approved, and not for example 1 for "1" or true.
            return self._arguments.validate_json(json.dumps(arguments), strict=True)
        except ValidationError as exc:
            raise ToolRunnerError(f"invalid arguments for {self.name}(): {problems(exc)}") from exc

    def _run(self, arguments: dict[str, Any], threads: BoundedSemaphore) -> Any:
        if not threads.acquire(blocking=False):
            raise ToolRunnerError(
                f"{self.name}() was not called: too many calls are running, including those from ended cells"
            )
        try:
            return self._function(**arguments)
        except KeyboardInterrupt as exc:  # of the function itself: no Ctrl-C raises it in this thread
            raise ToolRunnerError("KeyboardInterrupt") from exc
        finally:
            threads.release()

    def _reply(self, value: object) -> RunReply:
        try:
            return self._result.reply(value)
        except ValueError as exc:
            raise ToolRunnerError(f"the result of {self.name}() {exc}") from exc

    @contextmanager
    def _failures(self) -> Generator[None]:
        """Turns exceptions of the application's code into errors for code in the kernel: type and text only."""
        try:
            yield
        except ToolRunnerError:
            raise
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Something that the function awaited was cancelled, but not this call.
            raise ToolRunnerError("CancelledError") from exc
        except (Exception, SystemExit) as exc:
            logger.info("tool %s() failed", self.name, exc_info=exc)
            # Code must not learn paths of the host, which the text of an OSError contains.
            text = exc.strerror if isinstance(exc, OSError) and exc.filename is not None else _text(exc)
            raise ToolRunnerError(": ".join(filter(None, [type(exc).__name__, text]))) from exc


def _text(exc: BaseException) -> str:
    """Returns the text of an exception of any class, or an empty text if that fails."""
    try:
        return str(exc)
    except Exception:  # whatever its `__str__` raises
        return ""


#: Calls of sync functions that run at the same time; more are refused. A call that was cancelled counts until its
#: function returns, so that code can't start threads without end. Other calls are limited by connections of kernels.
MAX_THREADS = 256


class FunctionTools:
    """The functions of an application as tools. Only these can be called, by the names that they had here.

    Args:
        functions: The functions.

    Attributes:
        tools: The tools, in the order of the functions.

    Raises:
        ValueError: If a function can't be a tool, or two have the same name.
    """

    def __init__(self, functions: Iterable[Callable[..., Any]]):
        self.tools = [FunctionTool(function) for function in functions]
        self._by_name = {tool.name: tool for tool in self.tools}
        names = [tool.name for tool in self.tools]
        twice = [name for name in self._by_name if names.count(name) > 1]
        if twice:
            raise ValueError(f"tools: more than one function is called {twice[0]}(): give each its own name")
        self._threads = BoundedSemaphore(MAX_THREADS)

    async def call(self, tool_name: str, tool_args: dict[str, Any]) -> RunReply:
        """Calls a function, and returns the reply to code.

        Raises:
            ToolRunnerError: If there is no such function, or `FunctionTool.call` raises it.
        """
        tool = self._by_name.get(tool_name)
        if tool is None:
            raise ToolRunnerError(
                f"the application provides no function {tool_name!r}; available: {', '.join(self._by_name)}"
            )
        return await tool.call(tool_args, self._threads)
