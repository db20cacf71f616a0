"""What generators of tool APIs make of corpora of tools; benchmarks/README.md says how to read it.

__main__ ──► corpora ──► suite: the JSON-Schema-Test-Suite as tools and cases
    ├──────► measure ──► sides: ours in this process, the peer's in subjects/peer.py
    │            │ packages     instances: arguments for each tool
    │            ▼
    │        subjects/load.py, in an interpreter of its side: imports the packages, tries arguments and cases
    ├──────► typecheck: pyright, once over all packages of ours
    └──────► report
"""
