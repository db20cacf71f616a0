"""Instructions for connecting Jupyter clients to a kernel."""


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
