"""Measures the costs of ipybox, compared with the floor of each subject: the same without ipybox, in the same run.

    __main__ ──► suite ──► kernel, sessions, tools, data, mcp_mode, memory, … ──► measurement
       │            │               │ spawn, ask
       │            │               ▼
       │            │      subject ──► subjects/*.py, each in a fresh interpreter of its own
       └──► results ──► report (terminal), performance/ (docs/benchmarks.md)

A measurement is a function that starts subjects, has them do something in turns, and returns the samples.
"""
