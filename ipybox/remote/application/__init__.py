"""The application's end: an engine's command, the link to its node, and the files sent there.

`EngineGateway` replaces `KernelGateway`.
"""
