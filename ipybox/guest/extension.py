"""The IPython extension that sets up a kernel for code actions. It adds nothing to the user's namespace."""

import atexit
import os
import sys
from pathlib import Path
from typing import Any, NoReturn, cast

from IPython.core.error import StdinNotImplementedError
from IPython.core.interactiveshell import InteractiveShell

from ipybox.guest.packages import STDOUT, import_from, keep_bytecode_out_of_git, let_children_import, packages_dir
from ipybox.guest.protocol import REQUIRE_ESCAPE, SHELL_VARIABLE
from ipybox.guest.streams import order_output

#: Seconds to wait for the control thread at exit.
EXIT_GRACE = 1.0

NO_INPUT = (
    "input() is not available because no user can answer it here. Put the value in the code, or ask for it before "
    "running the cell."
)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Sets up `shell`: imports from the user's directory, ordered output, no input, and approval of shell commands."""
    keep_bytecode_out_of_git(Path.cwd())
    sys.path.insert(0, str(Path.cwd()))
    import_from(packages_dir(Path.cwd()))
    let_children_import(packages_dir(Path.cwd()))
    kernel: Any = getattr(shell, "kernel", None)
    if kernel is not None:
        kernel.raw_input = refuse_input
        kernel.getpass = refuse_input
        os.environ[STDOUT] = str(os.fstat(sys.stdout.fileno()).st_ino)
        order_output(kernel, sys.stdout, sys.stderr)
        atexit.register(finish_control_thread, shell, kernel)
    # `exit()` would let the cell continue, and end the kernel a moment later, during another cell.
    cast(Any, shell).ask_exit = sys.exit
    if (commands := os.environ.pop(SHELL_VARIABLE, None)) is not None:
        from ipybox.guest.shell_commands import control_commands  # takes time that other kernels need not spend

        control_commands(shell, escape_only=commands == REQUIRE_ESCAPE)


def finish_control_thread(shell: InteractiveShell, kernel: Any) -> None:
    """Lets the control thread finish the shutdown request before ipykernel's own handler stops output.

    Otherwise the thread would wait ten seconds for output that never comes, and the exit would wait for the thread.
    """
    if shell.exit_now and kernel.control_thread is not None:
        kernel.control_thread.join(EXIT_GRACE)


def refuse_input(*_: object, **__: object) -> NoReturn:
    """Fails immediately, because no user could answer."""
    raise StdinNotImplementedError(NO_INPUT)
