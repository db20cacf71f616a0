"""What people append to a generated module, such as an output parser's `ParseResult` and `run_parsed`: pure.

A module is generated text, then what was appended. Nothing is executed or imported to tell them apart.
"""

import ast
import warnings
from collections.abc import Collection

from ipybox.codeact.source import MAX_FILE, binding
from ipybox.mcp_apigen.manifest import ModuleRecord, digest


def split(module: bytes, records: Collection[ModuleRecord]) -> tuple[bytes, bool]:
    """Returns what was appended to a module, and whether the rest is as it was generated.

    If that was edited, what follows `run_async` was appended; nothing, where Python's parser doesn't find that.

    Args:
        module: The content of the file.
        records: What may have been generated.
    """
    for record in records:
        if record.begins(module):
            return module[record.length :], True
    generated, appended = _split_after_run_async(module)
    return appended, digest(generated) in {record.source for record in records}


def _split_after_run_async(module: bytes) -> tuple[bytes, bytes]:
    try:
        # Editors and version control change line ends.
        text = module.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        # The first: what is appended may define it again.
        last = binding(_parse(text), "run_async")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return module, b""
    lines = text.encode().splitlines(keepends=True)
    end = last.end_lineno if last else None
    return b"".join(lines[:end]), b"".join(lines[end:] if end else [])


def _parse(text: str) -> ast.Module:
    if len(text) > MAX_FILE:
        raise ValueError("too large to be parsed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in string literals
        return ast.parse(text)
