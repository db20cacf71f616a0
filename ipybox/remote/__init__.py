"""A kernel gateway on another machine, at the other end of a command's standard input and output.

The trust boundary runs between the folders: `application` runs here and trusts nothing from the other end, `node` runs
there (`python -m ipybox.node`), and `wire` is the protocol between both.
"""
