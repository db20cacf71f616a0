"""All functions that an application passes as tools."""

from collections.abc import Callable, Iterable
from threading import BoundedSemaphore
from typing import Any

from ipybox.guest.tools.protocol import RunReply
from ipybox.support.errors import ToolRunnerError
from ipybox.tool_exec.functions.function_tool import FunctionTool

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
