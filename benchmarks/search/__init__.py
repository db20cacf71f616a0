"""How well `tools("some words")` finds the tool that the words are about: `python -m benchmarks.search`.

    tuning.tsv, held_out.tsv ──► judged ──┐
    real servers ──► workspace ───────────┴──► recall: at rank 1 and 3 ──► __main__: the table

Weights and words are chosen with the queries of `tuning.tsv`; those of `held_out.tsv` only report.
"""
