"""Small helpers for applications."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def arun(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns the result of a blocking function, which runs in a thread instead of blocking the event loop.

    For example, `await arun(input, "Approve? ")`. Exceptions propagate.
    """
    return await asyncio.to_thread(function, *args, **kwargs)
