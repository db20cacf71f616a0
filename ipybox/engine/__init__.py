"""Engines: kernels run where a command puts them, such as `srun` or `ssh`, and this application stays where it is.

`EngineGateway` takes the place of `KernelGateway`. `ipybox.node` is the other end.
"""
