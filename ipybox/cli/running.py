"""Executor options and signal handling, shared by commands that run kernels."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar

from ipybox.cli.option_table import OPTIONS, given_parameters
from ipybox.cli.parsing import Mistake, mistakes
from ipybox.code_exec.config import ExecutorConfig
from ipybox.sandbox.preflight import require_sandbox
from ipybox.sandbox.settings import sandbox_settings
from ipybox.workspace.trust import TrustStore
from ipybox.workspace.writable import WritablePlaces

Signals = asyncio.Queue[int]
Value = TypeVar("Value")


def check_options(given: Mapping[str, Any]) -> None:
    """Raises a `Mistake` if options contradict each other, or a limit is too low."""
    if "sandbox_config" in given and "workspace_config" in given:
        raise Mistake("--sandbox-config and --workspace-config can't be combined")
    needless = [option.flag for option in OPTIONS if option.group == "Sandbox" and option.name in given]
    if needless and "sandbox" not in given:
        raise Mistake(f"{needless[0]} has no effect without the sandbox: add --sandbox")
    if "require_shell_escape" in given and "approve_shell_cmds" not in given:
        raise Mistake("--require-shell-escape requires --approve-shell-cmds", "add --approve-shell-cmds")
    with mistakes():
        _ = ExecutorConfig(**given_parameters(given, ExecutorConfig)).limits


def executor_options(given: Mapping[str, Any], store: TrustStore) -> dict[str, Any]:
    """Returns arguments for `ExecutorConfig`; raises a `Mistake`, or a SandboxError about settings or requirements."""
    check_options(given)
    options = given_parameters(given, ExecutorConfig)
    if "sandbox" in given:
        settings = partial(
            sandbox_settings,
            store,
            profile=given.get("sandbox_profile", "default"),
            allowed_domains=given.get("allow_domain", ()),
            file=given.get("sandbox_config"),
            discover="workspace_config" in given,
        )
        options["sandbox_config"] = checked(given, settings)
        checked(given, require_sandbox)
    if "engine" in given:
        from ipybox.remote.application.settings import find_engine

        with mistakes():
            checked(given, partial(find_engine, given["engine"], WritablePlaces(store.workspace)))
    return options


def checked(given: Mapping[str, Any], look_up: Callable[[], Value]) -> Callable[[], Value]:
    """Returns `look_up` with a cache; calls it now, so that errors end the command, except with --late-checks.

    With --late-checks, a client's first call reports the error: Claude Code does not restart a plugin's server within
    15 minutes of a failure.
    """
    once = cache(look_up)
    if "late_checks" not in given:
        once()
    return once


def run(work: Coroutine[object, object, int | None]) -> int:
    """Runs the work until it ends or a signal cancels it; returns the exit status."""
    return asyncio.run(until_signal(work))


async def until_signal(
    work: Coroutine[object, object, int | None], before: Callable[[int, Signals], Awaitable[None]] | None = None
) -> int:
    """Runs the work until it ends or a signal cancels it; returns the exit status.

    Before the cancellation, awaits `before` with the signal and a queue of later ones. If SIGHUP is ignored, as with
    `nohup`, it stays ignored.
    """
    signals = Signals()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
    working, signaled = asyncio.ensure_future(work), asyncio.ensure_future(signals.get())
    await asyncio.wait([working, signaled], return_when=asyncio.FIRST_COMPLETED)
    if not signaled.done():
        signaled.cancel()
        return working.result() or 0
    if before is not None:
        await before(signaled.result(), signals)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    return 128 + signaled.result()
