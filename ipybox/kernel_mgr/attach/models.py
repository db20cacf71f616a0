"""The REST responses of a `KernelRelay`, which acts as a Jupyter server with one kernel, and how to connect to it.

https://jupyter-server.readthedocs.io/en/latest/developers/rest-api.html
"""

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any


def models(kernel_id: str, name: str) -> dict[tuple[str, str], object]:
    """Returns the REST responses about one kernel, by method and path. Its session has the same id.

    Clients learn the kernel's state from its messages. `name` is the name that they show.
    """
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    activity: dict[str, Any] = {"last_activity": started, "connections": 1}
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
    kernel = {"id": kernel_id, "name": "python3", "execution_state": "idle", **activity}
    path = {"path": f"ipybox-{name}", "name": f"ipybox-{name}"}
    # VS Code finds the kernel here.
    session: dict[str, Any] = {"id": kernel_id, **path, "type": "notebook", "kernel": kernel, "notebook": path}
    return {
        ("GET", "/api"): {"version": version("jupyter_server")},
        ("GET", "/api/status"): {"started": started, "kernels": 1, **activity},
        ("GET", "/api/me"): {"identity": identity, "permissions": {}},
        ("GET", "/api/kernelspecs"): {"default": "python3", "kernelspecs": {"python3": specification}},
        ("GET", "/api/kernelspecs/python3"): specification,
        ("GET", "/api/kernels"): [kernel],
        ("POST", "/api/kernels"): kernel,
        ("GET", f"/api/kernels/{kernel_id}"): kernel,
        ("GET", "/api/sessions"): [session],
        ("POST", "/api/sessions"): session,
        ("GET", f"/api/sessions/{kernel_id}"): session,
        ("PATCH", f"/api/sessions/{kernel_id}"): session,
    }


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
