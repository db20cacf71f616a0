"""What commands that run kernels share: the executor's options, and an end by signals."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipybox.cli.option import Receiver
from ipybox.cli.option_table import given_parameters
from ipybox.cli.option_values import sandbox_mistake
from ipybox.cli.parsing import Failure, Mistake
from ipybox.kernel_mgr.limits.resource_limits import ResourceLimits
from ipybox.sandbox.preflight import require_sandbox
from ipybox.support.errors import SandboxError
from ipybox.workspace.trust import TrustStore
from ipybox.workspace.writable import WritablePlaces

if TYPE_CHECKING:
    from ipybox.sandbox.settings import SandboxSettings


def run_kernel(
    work: Callable[[dict[str, Any]], Coroutine[object, object, int | None]], given: Mapping[str, Any], workspace: Path
) -> int:
    """Runs what uses a kernel until it ends or a signal comes; returns the exit status.

    Args:
        work: Gets the options of its `CodeExecutor`.
        given: The options that were given, by their names.
        workspace: The workspace.

    Raises:
        Failure: If the sandbox, the rules or the audit log can't be used.
        Mistake: If options are wrong.
    """
    try:
        options = executor_options(given, TrustStore(workspace))
    except SandboxError as exc:
        raise Failure(str(exc)) from exc
    except ValueError as exc:
        raise Mistake(str(exc)) from exc
    return run(work(options))


def executor_options(given: Mapping[str, Any], store: TrustStore) -> dict[str, Any]:
    """Returns fields of `ExecutorConfig`, after a check of the sandbox and the limits.

    With --late-checks, a client learns only from its first cell what is wrong. Claude Code needs that: if the server of
    a plugin fails to start, Claude Code does not start it again for 15 minutes.

    Raises:
        Mistake: If options contradict each other.
        SandboxError: If the settings are wrong, or a requirement of the sandbox is missing.
        ValueError: If a limit is too low, or the engine is not known.
    """
    if mistake := sandbox_mistake(given):
        raise Mistake(mistake)
    options = given_parameters(given, Receiver.EXECUTOR)
    if "require_shell_escape" in options and "approve_shell_cmds" not in options:
        raise Mistake("--require-shell-escape requires --approve-shell-cmds", "add --approve-shell-cmds")
    if "sandbox" in given:
        options["sandbox_config"] = settings = cache(partial(_sandbox_settings, given, store))
        if "late_checks" not in given:
            settings()
            require_sandbox()
    if "engine" in given and "late_checks" not in given:
        from ipybox.remote.application.settings import find_engine

        find_engine(given["engine"], WritablePlaces(store.workspace))
    ResourceLimits(
        memory=given.get("memory_limit") or None,
        cpu_seconds=given.get("cpu_seconds"),
        processes=given.get("process_limit"),
    )
    return options


def _sandbox_settings(given: Mapping[str, Any], store: TrustStore) -> "SandboxSettings":
    from ipybox.sandbox.workspace_settings import sandbox_settings

    return sandbox_settings(
        store,
        profile=given.get("sandbox_profile", "default"),
        allowed_domains=given.get("allow_domain", ()),
        file=given.get("sandbox_config"),
        discover="workspace_config" in given,
    )


def run(work: Coroutine[object, object, int | None]) -> int:
    """Returns the exit status of the work, or that of a signal which has cancelled it."""
    return asyncio.run(until_signal(work))


async def until_signal(
    work: Coroutine[object, object, int | None], drain: Callable[[], Coroutine[object, object, None]] | None = None
) -> int:
    """Returns the exit status of the work, or that of a signal which has cancelled it.

    Args:
        work: The work.
        drain: Runs between SIGTERM and the cancellation, until it ends or another signal comes.
    """
    signals = ending_signals()
    working = asyncio.ensure_future(work)

    async def stop() -> int:
        number = await signals.get()
        if number == signal.SIGTERM and drain is not None:
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(drain()), asyncio.ensure_future(signals.get())]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        working.cancel()
        return 128 + number

    stopping = asyncio.create_task(stop())
    try:
        return await working or 0
    except asyncio.CancelledError:
        if not stopping.done():
            raise
        return stopping.result()
    finally:
        stopping.cancel()


def ending_signals() -> asyncio.Queue[int]:
    """Returns a queue of the signals that end this process. A SIGHUP that is ignored, as by `nohup`, stays so."""
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, signals.put_nowait, number)
    return signals
