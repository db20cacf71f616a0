"""What a person does to use a kernel that can be joined."""

from pathlib import Path


def instructions(url: str, token: str, connection_file: Path | None = None) -> str:
    """Returns how Jupyter clients connect to a `KernelRelay`.

    Args:
        url: Its address.
        token: Its token.
        connection_file: The file of a bridge for ZeroMQ, if there is one.
    """
    console = f"ipybox attach {url}" if connection_file is None else f"jupyter console --existing {connection_file}"
    return "\n".join(
        [
            "JupyterLab:      each new notebook or console uses the kernel",
            f"  JUPYTER_GATEWAY_URL={url} JUPYTER_GATEWAY_AUTH_TOKEN={token} jupyter lab",
            "VS Code:         Select Kernel > Existing Jupyter Server, and then the running kernel",
            f"  {url}/?token={token}",
            "jupyter console: or another client that speaks ZeroMQ",
            f"  {console}",
        ]
    )
