"""Shows the results of a run in `docs/benchmarks.md`: `__main__` writes what `page` and `plots` return.

`python -m benchmarks --json FILE` makes the results; nothing is measured here.
"""
