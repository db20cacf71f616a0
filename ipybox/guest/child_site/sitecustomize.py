"""Lets Python programs started by a kernel import the packages of its workspace, after the standard library.

What they print to the kernel's own stdout is line-buffered, as on a terminal. Otherwise a killed program would lose its
buffered output, and idle joblib workers would hold theirs back after the cell has ended.

A kernel puts this directory on PYTHONPATH (`ipybox.guest.packages`), so Python imports this module at startup. Other
Pythons, such as those of virtual environments created by code, are not affected.
https://docs.python.org/3/library/site.html#module-sitecustomize
"""

import io
import os
import site
import sys

_prefix, _, _packages = os.environ.get("IPYBOX_PACKAGES", "").partition(os.pathsep)
if _packages and _prefix == sys.prefix:
    _sites = {*site.getsitepackages(), site.getusersitepackages()}
    sys.path.insert(next((i for i, path in enumerate(sys.path) if path in _sites), len(sys.path)), _packages)

_stdout: io.TextIOWrapper | None = sys.stdout  # pyright: ignore[reportAssignmentType]
if _stdout is not None and str(os.fstat(_stdout.fileno()).st_ino) == os.environ.get("IPYBOX_STDOUT"):
    _stdout.reconfigure(line_buffering=True)

# Run the environment's own sitecustomize, if it has one.
_this = sys.modules.pop(__name__)
sys.path[:] = [path for path in sys.path if path != os.path.dirname(__file__)]
try:
    import sitecustomize  # noqa: F401  # pyright: ignore[reportUnusedImport, reportSelfImport]
except ImportError:
    sys.modules[__name__] = _this
