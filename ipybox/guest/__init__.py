"""Code on the untrusted side of the trust boundary: the gateway process and the code inside kernels.

Nothing here imports the MCP SDK, the code generator or a server framework beyond Jupyter's own.
"""
