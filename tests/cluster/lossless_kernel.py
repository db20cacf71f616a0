"""A kernel that loses no output, for a gateway on another host, which `provisioned.py` installs on the nodes.

By default, the socket for output drops messages for a connection that is 1,000 behind. This has to be set before the
socket listens.
"""

from typing import Any, cast

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

_app: Any = cast(Any, IPKernelApp)
_init_iopub = _app.init_iopub


def _init_lossless_iopub(self: object, context: Any) -> None:
    context.sndhwm = 0  # no limit
    _init_iopub(self, context)


_app.init_iopub = _init_lossless_iopub


class LosslessKernel(IPythonKernel):
    """What the launcher imports before it makes the socket."""
