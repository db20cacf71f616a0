"""What clients see of the Jupyter server that a `KernelRelay` stands for: one kernel, its specification, one session.

https://jupyter-server.readthedocs.io/en/latest/developers/rest-api.html
"""

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any


class KernelModels:
    """The answers to requests about one kernel.

    Args:
        kernel_id: The id of the kernel. Its session has the same one.
        name: The name that clients show.
        is_busy: Returns whether the kernel runs cells of clients.
        connections: Returns the number of clients.
    """

    def __init__(self, kernel_id: str, name: str, is_busy: Callable[[], bool], connections: Callable[[], int]):
        self._kernel_id = kernel_id
        self._name = name
        self._is_busy = is_busy
        self._connections = connections
        self._started = _now()

    def api(self) -> dict[str, Any]:
        """Returns the version of the server."""
        return {"version": version("jupyter_server")}

    def status(self) -> dict[str, Any]:
        """Returns what the server does."""
        return {
            "started": self._started,
            "last_activity": _now(),
            "connections": self._connections(),
            "kernels": 1,
        }

    def identity(self) -> dict[str, Any]:
        """Returns the user whom the token stands for."""
        names = dict.fromkeys(("username", "name", "display_name", "initials"), "ipybox")
        return {"identity": {**names, "avatar_url": None, "color": None}, "permissions": {}}

    def specifications(self) -> dict[str, Any]:
        """Returns all kernel specifications."""
        return {"default": "python3", "kernelspecs": {"python3": self.specification()}}

    def specification(self) -> dict[str, Any]:
        """Returns the kernel's specification, whose name clients show."""
        spec: dict[str, Any] = {
            "argv": [],
            "env": {},
            "display_name": f"ipybox session {self._name}",
            "language": "python",
            "interrupt_mode": "signal",
            "metadata": {},
        }
        return {"name": "python3", "spec": spec, "resources": {}}

    def kernel(self) -> dict[str, Any]:
        """Returns the kernel."""
        return {
            "id": self._kernel_id,
            "name": "python3",
            "last_activity": _now(),
            "execution_state": "busy" if self._is_busy() else "idle",
            "connections": self._connections(),
        }

    def session(self) -> dict[str, Any]:
        """Returns the session, in which VS Code finds the kernel."""
        path = {"path": f"ipybox-{self._name}", "name": f"ipybox-{self._name}"}
        return {"id": self._kernel_id, **path, "type": "notebook", "kernel": self.kernel(), "notebook": path}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
