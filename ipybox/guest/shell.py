"""The kernel's IPython shell, which shows errors whatever user code did to them or to the streams."""

import ast
import os
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, cast

from ipykernel import zmqshell
from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.zmqshell import ZMQDisplayPublisher
from IPython.core import ultratb
from IPython.core.error import UsageError
from IPython.core.events import EventManager, available_events
from traitlets import Type

from ipybox.guest.cell_check import check_cell
from ipybox.guest.pictures import GuestDisplayFormatter, ShownWidgets, with_picture
from ipybox.guest.process import end_child
from ipybox.guest.streams import StandardStreams
from ipybox.guest.tracebacks import (
    bounded,
    clear_exhausted_frames,
    count_source_lines,
    cut_at_ipybox,
    has_group,
    library_line,
    shorten,
    text_of,
    user_traceback,
)

#: The number of the execution that a task is part of.
_execution: ContextVar[int] = ContextVar("ipybox_execution", default=0)

#: Name prefixes of GUI toolkits, which have an event loop.
GUI_TOOLKITS = ("tk", "wx", "gtk", "qt", "osx")

SYSTEM_EXIT = "An exception has occurred, use %tb to see the full traceback.\n"


class GuestDisplayHook(ZMQShellDisplayHook):
    """Shows the value of a cell, even if its code has closed a stream."""

    def quiet(self) -> bool:
        """Returns whether the cell ends with a semicolon. IPython would look in its history, which is empty."""
        hook, shell = cast(Any, self), cast(Any, self).shell
        return hook.semicolon_at_end_of_expression(shell.transform_cell(shell.current_cell))

    def start_displayhook(self) -> None:
        """Starts the message that shows a value."""
        cast(Any, self).shell.streams.restore()
        cast(Any, super()).start_displayhook()


class GuestDisplayPublisher(ZMQDisplayPublisher):
    """Shows displays, even if the code has closed a stream."""

    def __init__(self, *args: Any, **kwargs: Any):
        cast(Any, super()).__init__(*args, **kwargs)
        self.widgets = ShownWidgets()

    def publish(self, data: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """Publishes a display, in a form that can be read without a browser."""
        if not kwargs.get("update"):
            kwargs["transient"] = self.widgets.record(data, kwargs.get("transient"))
        cast(Any, super()).publish(with_picture(data), *args, **kwargs)

    def _flush_streams(self) -> None:
        cast(Any, self).shell.streams.restore()
        cast(Any, super())._flush_streams()


class GuestEvents(EventManager):
    """Runs callbacks before and after a cell's code; none of them can keep the cell from ending."""

    def trigger(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Calls the callbacks for an event. Prints their exceptions: in IPython, a SystemExit would end the kernel.

        An interrupt ends the cell: its code does not run after a callback that was interrupted.
        """
        for callback in self.callbacks[event][:]:
            try:
                callback(*args, **kwargs)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                cast(Any, self).shell.streams.restore()
                sys.stderr.write("\n".join([f"Error in a callback for {event}:", *user_traceback(error), ""]))


# Libraries such as rich detect a Jupyter kernel by the name of this class.
class ZMQInteractiveShell(zmqshell.ZMQInteractiveShell):
    """The shell of a kernel for code actions."""

    displayhook_class = Type(GuestDisplayHook)
    display_pub_class = Type(GuestDisplayPublisher)
    streams: StandardStreams
    #: The reply content for the last error that the current execution showed.
    shown: dict[str, Any] | None = None
    #: The number of executions, and the number of the last one that failed outside of its code.
    _cells = 0
    _abandoned = -1
    #: The code of the current cell.
    current_cell = ""
    #: The code that is about to be parsed, until then.
    _unchecked: str | None = None

    def __init__(self, *args: Any, **kwargs: Any):
        self.streams = StandardStreams()
        self._process = os.getpid()
        cast(Any, super()).__init__(*args, **kwargs)

    def init_events(self) -> None:
        """Sets up the callbacks for events."""
        super().init_events()
        events = GuestEvents(self, available_events)
        events.callbacks = self.events.callbacks
        self.events = events

    def init_display_formatter(self) -> None:
        """Sets up the forms of displays."""
        self.display_formatter = GuestDisplayFormatter(parent=self)
        cast(list[object], self.configurables).append(self.display_formatter)

    def init_traceback_handlers(self, custom_exceptions: Any) -> None:
        """Sets up the formatting of tracebacks."""
        cast(Any, super()).init_traceback_handlers(custom_exceptions)
        cast(Any, ultratb).get_line_number_of_frame = count_source_lines
        tracebacks: Any = self.InteractiveTB
        format_record = tracebacks.format_record

        def format_frame(info: Any) -> str:
            """Shows library frames as one line each, unless `%tb Verbose` shows everything."""
            from stack_data.core import RepeatedFrames  # IPython also imports it late

            repeated = isinstance(info._sd, RepeatedFrames)
            line = None if repeated or tracebacks.include_vars else library_line(info.frame, info.lineno)
            return line or format_record(info)

        tracebacks.format_record = format_frame

    @contextmanager
    def _tee(self, channel: str) -> Generator[None]:
        """Copies no output to the history, which the kernel does not keep.

        IPython would replace the stream's `write`, which some streams of user code don't permit.
        """
        yield

    def init_magics(self) -> None:
        """Sets up the magics. `%pip` installs for the workspace (`pip_command`).

        If `%gui` fails, its cell fails; IPython's own magic only logs the error.
        """
        cast(Any, super()).init_magics()
        cast(Any, self).register_magic_function(self._gui, "line", "gui")
        cast(Any, self).register_magic_function(self._pip, "line", "pip")

    def _gui(self, line: str) -> None:
        self.enable_gui(line.strip() or None)

    def _pip(self, line: str) -> None:
        """Runs pip as IPython does, but does not advise restarting the kernel, which isn't necessary."""
        cast(Any, self).system(f"{shlex.quote(sys.executable)} -m pip {line}")

    def enable_gui(self, gui: str | None = None) -> None:
        """Runs an event loop between cells, or stops it.

        Raises:
            UsageError: If it belongs to a GUI toolkit; ipykernel would report that only in the next cell's output.
        """
        if gui is not None and gui.startswith(GUI_TOOLKITS):
            raise UsageError(f"can't use the {gui} event loop: a kernel has no display")
        super().enable_gui(gui)

    def start_execution(self) -> int:
        """Resets the state of earlier cells, which ipykernel does only for cells without `await`.

        Returns:
            The number of the cell.
        """
        self.streams.restore()
        self._cells += 1
        _execution.set(self._cells)
        self.execution_count = self._cells  # IPython counts only the cells of its history, which is empty
        self.shown = self._last_traceback = None
        self._last_traceback_during_displayhook = False
        cast(Any, self.displayhook).msg = None  # left by a display that failed
        # IPython 9 keeps all displays, for a history that the kernel does not have.
        getattr(self.history_manager, "outputs", {}).clear()
        return self._cells

    def abandon_execution(self) -> None:
        """Keeps the code of the current execution from starting after its reply.

        ipykernel does not cancel the execution's task if an interrupt arrives before it awaits the task.
        """
        self._abandoned = self._cells

    def update_widgets(self) -> None:
        """Gives the execution's widgets their final text, after any cells that its code ran, as `%%capture` does."""
        if isinstance(publisher := self.display_pub, GuestDisplayPublisher):  # code may have replaced it
            publisher.widgets.update(publisher.publish)

    async def run_cell_async(self, raw_cell: str, *args: Any, **kwargs: Any) -> Any:
        """Runs a cell. A child that its code forked exits at the end of the cell."""
        if _execution.get() == self._abandoned:
            return None
        process, self.current_cell = os.getpid(), raw_cell
        self._unchecked = kwargs.get("transformed_cell")
        error: BaseException | None = None
        try:
            result = await cast(Any, super()).run_cell_async(raw_cell, *args, **kwargs)
            error = result.error_before_exec or result.error_in_exec
            return result
        except BaseException as exc:
            error = exc
            raise
        finally:
            if os.getpid() != process:
                end_child(error)

    def transform_ast(self, node: ast.AST) -> ast.AST:
        """Transforms the syntax tree of a cell, and checks it. Code that a magic runs later is not checked."""
        transformed: ast.AST = cast(Any, super()).transform_ast(node)
        source, self._unchecked = self._unchecked, None
        if source is not None:
            check_cell(transformed, source, cast(Any, self).user_ns)
        return transformed

    def showtraceback(
        self,
        exc_tuple: Any = None,
        filename: str | None = None,
        tb_offset: int | None = None,
        exception_only: bool = False,
        running_compiled_code: bool = False,
    ) -> None:
        """Shows an exception without ipybox's own frames at its end, even if formatting it fails."""
        self.streams.restore()
        try:
            info: tuple[Any, Any, Any] = cast(Any, self)._get_exc_info(exc_tuple)
        except ValueError:  # no exception was raised: IPython's own method would now show this one
            print("No traceback available to show.", file=sys.stderr)
            return
        etype, value, traceback = info
        shorten(value)
        cut_at_ipybox(traceback)
        if os.getpid() != self._process:
            if not isinstance(value, SystemExit):
                sys.stderr.write("\n".join([*user_traceback(value), ""]))
            return
        try:
            clear_exhausted_frames(value)  # formatting also needs resources
            lines = self._format(etype, value, traceback, tb_offset, exception_only)
        except BaseException:
            lines = user_traceback(value)
        self._showtraceback(etype, value, lines)

    def _format(
        self,
        etype: type[BaseException],
        value: BaseException,
        traceback: TracebackType | None,
        tb_offset: int | None,
        exception_only: bool,
    ) -> list[str]:
        str(value)  # if this fails, IPython omits the exception
        if exception_only:
            return [SYSTEM_EXIT, *cast(Any, self.InteractiveTB).get_exception_only(etype, value)]
        if has_group(value) or isinstance(value, SyntaxError):
            # IPython prints groups to stderr, and reports them without a traceback. Of a syntax error in what the code
            # executes or imports, it would show only the end.
            return user_traceback(value)
        if isinstance(value, UsageError):  # IPython prints it, and the reply repeats it
            return [f"UsageError: {value}"]
        if hasattr(value, "_render_traceback_"):  # https://ipython.readthedocs.io/en/stable/config/integrating.html
            lines: Any = cast(Any, value)._render_traceback_()
            if not (isinstance(lines, list) and all(isinstance(line, str) for line in cast(list[object], lines))):
                raise TypeError("a rendered traceback must be a list of strings")
            return cast(list[str], lines)
        return self.InteractiveTB.structured_traceback(etype, value, traceback, tb_offset=tb_offset)

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        self.streams.restore()  # both are flushed
        text, stb = bounded(text_of(evalue)), list(map(bounded, stb))
        cast(Any, super())._showtraceback(etype, text, stb)
        self.shown = {"status": "error", "ename": etype.__name__, "evalue": text, "traceback": stb}
