"""A kernel gateway on another machine, connected by the standard input and output of a command.

The parts follow the trust boundary: `application` runs here and trusts nothing it receives, `node` runs there
(`python -m ipybox.node`), and `wire` is the protocol between them.
"""
