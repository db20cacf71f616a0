"""Makes a page with plots in `docs/` of the results of a run: `__main__` writes what `page` and `plots` return.

`python -m benchmarks --json FILE` makes the results; nothing is measured here.
"""
