"""Code that runs on the far side of the trust boundary: the gateway process and what is inside the kernel.

Nothing here imports the MCP SDK, the code generator or a server framework beyond Jupyter's own.
"""
