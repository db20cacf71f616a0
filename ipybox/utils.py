"""Small helpers for applications."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def arun(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what a blocking function returns, without blocking the event loop: it runs on a thread.

    For example `await arun(input, "Approve? ")`. What the function raises is raised.
    """
    return await asyncio.to_thread(function, *args, **kwargs)
