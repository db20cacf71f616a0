"""The application's end: an engine's command, the link to its node, and the files that are sent there.

`EngineGateway` takes the place of `KernelGateway`.
"""
