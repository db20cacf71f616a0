"""Kernels of another Jupyter server: Jupyter Server, Kernel Gateway, Enterprise Gateway, or a user's of JupyterHub.

`JupyterGateway` stands in for `KernelGateway`: it connects to the server instead of starting a process. `ServerKernel`
is a `RemoteKernel` there; `KernelBridge` carries its tool calls, as such a kernel can't connect to the application.
Executions and their outputs are those of `kernel_mgr`.
"""
