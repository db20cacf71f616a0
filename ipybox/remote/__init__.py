"""A kernel gateway on another machine, at the other end of a command's standard input and output.

The trust boundary runs between the folders: `application` is what runs here and trusts nothing of the other end, `node`
is what `python -m ipybox.node` runs there, and `wire` is what both say to each other.
"""
