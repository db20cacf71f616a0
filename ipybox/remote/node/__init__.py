"""The node's end, in the process of `python -m ipybox.node`: a kernel gateway, and a workspace if none is shared."""
