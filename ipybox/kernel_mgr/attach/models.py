"""The REST responses of a `KernelRelay`, which acts as a Jupyter server with one kernel, and how to connect to it.

https://jupyter-server.readthedocs.io/en/latest/developers/rest-api.html
"""

from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

Model = Callable[[], object]


def models(
    kernel_id: str, name: str, is_busy: Callable[[], bool], connections: Callable[[], int]
) -> dict[tuple[str, str], Model]:
    """Returns the REST responses about one kernel, by method and path. Its session has the same id.

    Args:
        name: The name that clients show.
        is_busy: Returns whether the kernel is running clients' cells.
        connections: Returns the number of clients.
    """
    started = _now()
    identity = {
        **dict.fromkeys(("username", "name", "display_name", "initials"), "ipybox"),
        **dict.fromkeys(("avatar_url", "color")),
    }
    spec: dict[str, Any] = {
        "argv": [],
        "env": {},
        "display_name": f"ipybox session {name}",
        "language": "python",
        "interrupt_mode": "signal",
        "metadata": {},
    }
    specification: dict[str, Any] = {"name": "python3", "spec": spec, "resources": {}}

    def server() -> dict[str, Any]:
        return {"started": started, "last_activity": _now(), "connections": connections(), "kernels": 1}

    def kernel() -> dict[str, Any]:
        return {
            "id": kernel_id,
            "name": "python3",
            "last_activity": _now(),
            "execution_state": "busy" if is_busy() else "idle",
            "connections": connections(),
        }

    def session() -> dict[str, Any]:  # VS Code finds the kernel here
        path = {"path": f"ipybox-{name}", "name": f"ipybox-{name}"}
        return {"id": kernel_id, **path, "type": "notebook", "kernel": kernel(), "notebook": path}

    return {
        ("GET", "/api"): lambda: {"version": version("jupyter_server")},
        ("GET", "/api/status"): server,
        ("GET", "/api/me"): lambda: {"identity": identity, "permissions": {}},
        ("GET", "/api/kernelspecs"): lambda: {"default": "python3", "kernelspecs": {"python3": specification}},
        ("GET", "/api/kernelspecs/python3"): lambda: specification,
        ("GET", "/api/kernels"): lambda: [kernel()],
        ("POST", "/api/kernels"): kernel,
        ("GET", f"/api/kernels/{kernel_id}"): kernel,
        ("GET", "/api/sessions"): lambda: [session()],
        ("POST", "/api/sessions"): session,
        ("GET", f"/api/sessions/{kernel_id}"): session,
        ("PATCH", f"/api/sessions/{kernel_id}"): session,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def instructions(url: str, token: str) -> str:
    """Returns instructions for connecting Jupyter clients to the `KernelRelay` at this URL."""
    return "\n".join(
        [
            "JupyterLab (every new notebook or console uses this kernel):",
            f"  JUPYTER_GATEWAY_URL={url} JUPYTER_GATEWAY_AUTH_TOKEN={token} jupyter lab",
            "VS Code: Select Kernel > Existing Jupyter Server, then choose the running kernel",
            f"  {url}/?token={token}",
        ]
    )
