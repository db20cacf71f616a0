"""One function of the application as a tool."""

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from threading import BoundedSemaphore
from typing import Any

from pydantic import ValidationError

from ipybox.guest.tools.protocol import RunReply
from ipybox.support.daemon_thread import in_daemon_thread
from ipybox.support.errors import ToolRunnerError
from ipybox.tool_exec.functions.result import ResultType, problems
from ipybox.tool_exec.functions.signature import ToolSchema, arguments_adapter, resolved_signature, tool_name

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
            raise ToolRunnerError(f"invalid arguments of {self.name}(): {problems(exc)}") from exc

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
