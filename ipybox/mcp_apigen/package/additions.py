"""Finds additions of users to a generated module, such as an output parser's `ParseResult` and `run_parsed`: pure.

A module consists of generated text, then additions. Nothing is executed or imported to tell them apart.
"""

import ast
import warnings
from collections.abc import Collection

from ipybox.codeact.source import MAX_FILE, binding
from ipybox.mcp_apigen.package.manifest import ModuleRecord, sha256_hex


def split_additions(module: bytes, records: Collection[ModuleRecord]) -> tuple[bytes, bool]:
    """Returns the additions to a module, and whether the generated part is unchanged.

    If it was edited, the additions start after `run_async`; empty if Python's parser doesn't find that.

    Args:
        module: The content of the file.
        records: The records of possibly generated modules.
    """
    for record in records:
        if record.begins(module):
            return module[record.length :], True
    generated, appended = _split_after_run_async(module)
    return appended, sha256_hex(generated) in {record.source for record in records}


def _split_after_run_async(module: bytes) -> tuple[bytes, bytes]:
    try:
        # Editors and version control change line ends.
        text = module.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        # The first one: additions may define it again.
        last = binding(_parse(text), "run_async")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return module, b""
    lines = text.encode().splitlines(keepends=True)
    end = last.end_lineno if last else None
    return b"".join(lines[:end]), b"".join(lines[end:] if end else [])


def _parse(text: str) -> ast.Module:
    if len(text) > MAX_FILE:
        raise ValueError("too large to parse")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in string literals
        return ast.parse(text)
