"""How a person joins a kernel."""


def instructions(url: str, token: str) -> str:
    """Returns how Jupyter clients connect to a `KernelRelay` at this address, with this token."""
    return "\n".join(
        [
            "JupyterLab (every new notebook or console uses this kernel):",
            f"  JUPYTER_GATEWAY_URL={url} JUPYTER_GATEWAY_AUTH_TOKEN={token} jupyter lab",
            "VS Code: Select Kernel > Existing Jupyter Server, then choose the running kernel",
            f"  {url}/?token={token}",
        ]
    )
