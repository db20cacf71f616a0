"""Checks whether the event loop of a GUI toolkit can run in the kernel, which usually has no display.

ipykernel starts it after the cell that requests it, so its error would appear in the next cell's output.
https://github.com/ipython/ipykernel/blob/v7.4.0/ipykernel/eventloops.py#L636
"""

import os
import sys
from importlib import import_module

from IPython.core.error import UsageError

#: The modules that ipykernel's event loops import; it imports those of Qt earlier.
MODULES = {"tk": "tkinter", "wx": "wx", "gtk": "gi", "gtk3": "gi"}
TOOLKITS = ("tk", "wx", "gtk", "qt")


def check_gui(gui: str) -> None:
    """Returns if the toolkit is installed and has a display, or the name is not a toolkit.

    Raises:
        UsageError: If it can't be used.
    """
    if not gui.startswith(TOOLKITS):
        return
    if sys.platform == "linux" and not os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}:
        raise UsageError(f"can't use the {gui} event loop: no display found")
    try:
        if gui in MODULES:
            module = import_module(MODULES[gui])
            if gui == "tk":
                module.Tk().destroy()  # fails if the display can't be reached
    except Exception as error:
        raise UsageError(f"can't use the {gui} event loop: {error}") from error
