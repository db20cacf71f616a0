"""Measures what ipybox costs beside the floor of each thing: the same without ipybox, in the same run.

    __main__ ──► suite ──► imports, kernel, tools, mcp_mode ──► measurement ──► report
                                       │ spawn, ask
                                       ▼
                 subject ──► subjects/*.py, each in a fresh interpreter of its own

A measurement is a function that starts subjects, has them do something in turns, and returns the samples.
"""
