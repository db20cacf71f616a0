"""Measures generators of tool APIs on corpora of tools; benchmarks/README.md explains the results.

__main__ ──► corpora ──► suite: the JSON-Schema-Test-Suite as tools and cases
    ├──────► measure ──► sides: ipybox's in this process, the peer's in subjects/peer.py
    │            │ packages     instances: arguments for each tool
    │            ▼
    │        subjects/load.py, in an interpreter of its side: imports the packages, tries arguments and cases
    ├──────► typecheck: pyright, once over all packages of ipybox
    └──────► report
"""
