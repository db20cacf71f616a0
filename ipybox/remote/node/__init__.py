"""The node's end, run by `python -m ipybox.node`: a kernel gateway, and a workspace unless the node shares one."""
