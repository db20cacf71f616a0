"""What becomes of the results of a run: a page with plots in `docs/`, and a history.

    __main__ ──► page ──► plots
        └──────► history

`python -m benchmarks --performance --json FILE` makes the results; nothing is measured here.
"""
