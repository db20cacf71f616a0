"""The kernel's IPython shell, whose errors are shown whatever user code has done to them and to the streams."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, cast

from ipykernel import zmqshell
from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.zmqshell import ZMQDisplayPublisher
from IPython.core import ultratb
from IPython.core.error import InputRejected, UsageError
from IPython.core.events import EventManager, available_events
from traitlets import Type

from ipybox.guest.forks import end_child
from ipybox.guest.gui import check_gui
from ipybox.guest.streams import StandardStreams
from ipybox.guest.tracebacks import (
    count_source_lines,
    cut_at_ipybox,
    has_group,
    library_line,
    release_what_ran_out,
    text_of,
    user_traceback,
)

SYSTEM_EXIT = "An exception has occurred, use %tb to see the full traceback.\n"


class GuestDisplayHook(ZMQShellDisplayHook):
    """Shows the value of a cell, also if its code has left a closed stream behind: both streams are flushed before."""

    def start_displayhook(self) -> None:
        """Starts the message that shows a value."""
        cast(Any, self).shell.streams.restore()
        cast(Any, super()).start_displayhook()


class GuestDisplayPublisher(ZMQDisplayPublisher):
    """Shows displays, also if the code has left a closed stream behind: both streams are flushed before."""

    def _flush_streams(self) -> None:
        cast(Any, self).shell.streams.restore()
        cast(Any, super())._flush_streams()


class GuestEvents(EventManager):
    """Runs the callbacks of a cell, before and after its code; none of them keeps the cell from ending."""

    def trigger(self, event: str, *args: Any, **kwargs: Any) -> None:
        """Calls the callbacks for an event. What they raise is printed: IPython lets a SystemExit end the kernel."""
        for callback in self.callbacks[event][:]:
            try:
                callback(*args, **kwargs)
            except BaseException as error:
                cast(Any, self).shell.report(f"Error in a callback for {event}", error)


# Libraries look for a class of this name to know that they run in a Jupyter kernel, as rich does.
class ZMQInteractiveShell(zmqshell.ZMQInteractiveShell):
    """The shell of a kernel for code actions."""

    displayhook_class = Type(GuestDisplayHook)
    display_pub_class = Type(GuestDisplayPublisher)
    streams: StandardStreams
    #: What the reply to the current execution says of the error that was shown last, if any.
    shown: dict[str, Any] | None = None

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

    def init_traceback_handlers(self, custom_exceptions: Any) -> None:
        """Sets up the formatting of tracebacks."""
        cast(Any, super()).init_traceback_handlers(custom_exceptions)
        cast(Any, ultratb).get_line_number_of_frame = count_source_lines
        tracebacks: Any = self.InteractiveTB
        format_record = tracebacks.format_record

        def format_frame(info: Any) -> str:
            """Gives frames of libraries one line each, unless it is all shown (`%tb Verbose`)."""
            from stack_data.core import RepeatedFrames  # which IPython imports no sooner, either

            repeated = isinstance(info._sd, RepeatedFrames)
            line = None if repeated or tracebacks.include_vars else library_line(info.frame, info.lineno)
            return line or format_record(info)

        tracebacks.format_record = format_frame

    @contextmanager
    def _tee(self, channel: str) -> Generator[None]:
        """Keeps no copy of the output: IPython holds it, without a bound, for a history that the kernel does not have.

        To do so it replaces `write` of the stream, which not all streams of user code allow.
        """
        yield

    def init_magics(self) -> None:
        """Sets up the magics. `%gui` fails with its cell: IPython's own one logs the error, and the cell goes on."""
        cast(Any, super()).init_magics()
        cast(Any, self).register_magic_function(self._gui, "line", "gui")

    def _gui(self, line: str) -> None:
        self.enable_gui(line.strip() or None)

    def enable_gui(self, gui: str | None = None) -> None:
        """Runs the event loop of a GUI toolkit between cells, or none.

        Raises:
            UsageError: If it could not run.
        """
        if gui is not None:
            check_gui(gui)
        super().enable_gui(gui)

    def transform_cell(self, raw_cell: str) -> Any:
        """Returns a cell as Python, without transformers that fail: no later cell could take them out."""
        try:
            return cast(Any, super()).transform_cell(raw_cell)
        except (SyntaxError, KeyboardInterrupt):  # the first is how a transformer refuses a cell
            raise
        except BaseException as error:
            self.input_transformers_cleanup.clear()
            cast(Any, self).input_transformers_post.clear()
            self.report("The input transformers were removed, as they fail", error)
            return cast(Any, super()).transform_cell(raw_cell)

    def transform_ast(self, node: Any) -> Any:
        """Returns a cell's syntax tree, without transformers that fail; IPython keeps some of those."""
        try:
            return cast(Any, super()).transform_ast(node)
        except (InputRejected, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.ast_transformers.clear()
            self.report("The AST transformers were removed, as they fail", error)
            return cast(Any, super()).transform_ast(node)

    def report(self, what: str, error: BaseException) -> None:
        """Prints an error that does not end the cell."""
        self.streams.restore()
        sys.stderr.write("\n".join([f"{what}:", *user_traceback(error), ""]))

    def start_execution(self) -> None:
        """Forgets what earlier cells have left; ipykernel does so only for cells without `await`."""
        self.streams.restore()
        self.shown = self._last_traceback = None
        self._last_traceback_during_displayhook = False
        cast(Any, self.displayhook).msg = None  # by a display that failed
        # IPython 9 keeps all displays, for a history that the kernel does not have.
        getattr(self.history_manager, "outputs", {}).clear()

    async def run_cell_async(self, raw_cell: str, *args: Any, **kwargs: Any) -> Any:
        """Runs a cell; a child that its code has forked off ends with it."""
        process = os.getpid()
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

    def showtraceback(
        self,
        exc_tuple: Any = None,
        filename: str | None = None,
        tb_offset: int | None = None,
        exception_only: bool = False,
        running_compiled_code: bool = False,
    ) -> None:
        """Shows an exception without the frames of ipybox itself at its end, and whatever fails about it."""
        self.streams.restore()
        try:
            info: tuple[Any, Any, Any] = cast(Any, self)._get_exc_info(exc_tuple)
        except ValueError:  # there is none
            super().showtraceback()
            return
        etype, value, traceback = info
        cut_at_ipybox(traceback)
        if os.getpid() != self._process:
            if not isinstance(value, SystemExit):
                sys.stderr.write("\n".join([*user_traceback(value), ""]))
            return
        try:
            release_what_ran_out(value)  # formatting needs some, too
            if isinstance(value, SyntaxError | UsageError):
                super().showtraceback(info, filename)
                return
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
        str(value)  # if this fails, IPython leaves out what it was
        if exception_only:
            return [SYSTEM_EXIT, *cast(Any, self.InteractiveTB).get_exception_only(etype, value)]
        if has_group(value):
            # IPython prints these to stderr, and then reports an error without a traceback.
            return user_traceback(value)
        if hasattr(value, "_render_traceback_"):  # https://ipython.readthedocs.io/en/stable/config/integrating.html
            lines: Any = cast(Any, value)._render_traceback_()
            if not (isinstance(lines, list) and all(isinstance(line, str) for line in cast(list[object], lines))):
                raise TypeError("a rendered traceback must be a list of strings")
            return cast(list[str], lines)
        return self.InteractiveTB.structured_traceback(etype, value, traceback, tb_offset=tb_offset)

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        self.streams.restore()  # both are flushed
        text = text_of(evalue)
        cast(Any, super())._showtraceback(etype, text, stb)
        self.shown = {"status": "error", "ename": etype.__name__, "evalue": text, "traceback": stb}
