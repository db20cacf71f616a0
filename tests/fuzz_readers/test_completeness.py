"""Each function that reads is in the table of readers, or among those that read nothing untrusted."""

import ast
from collections.abc import Iterator

from tests.fuzz_readers.table import READERS
from tests.fuzz_readers.trusted import TRUSTED
from tests.servers import ROOT

#: Names of functions and methods that open, read, decode or parse.
READING = {
    *("read", "read_bytes", "read_text", "readline", "readlines", "readexactly", "pread", "recv", "recv_fds"),
    *("sock_recv", "loads", "load", "parse", "safe_load", "literal_eval", "model_validate", "model_validate_json"),
    *("validate_json", "validate_python", "unpack", "unpack_from", "receive_data", "scandir", "walk", "listdir"),
    *("b64decode", "from_buffer", "open", "fdopen", "decode"),
}


def reading(tree: ast.AST, names: tuple[str, ...] = ()) -> Iterator[str]:
    """Yields the functions that call something of these names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from reading(node, (*names, node.name))
            continue
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in READING:
                yield ".".join(names)
        yield from reading(node, names)


def found() -> set[str]:
    """Returns all functions that read, as `package/module:function`."""
    package = ROOT / "ipybox"
    return {
        f"{path.relative_to(package).with_suffix('')}:{function}"
        for path in package.rglob("*.py")
        for function in reading(ast.parse(path.read_text()))
    }


def covers(entry: str, function: str) -> bool:
    """Returns whether an entry means a function: itself, or what is in its package, module, class or function."""
    return function == entry or any(function.startswith(f"{entry}{mark}") for mark in "/:.")


def test_each_function_that_reads_is_in_the_table_or_reads_nothing_untrusted():
    entries = [entry for reader in READERS.values() for entry in reader.covers] + [*TRUSTED]
    functions = found()

    assert [function for function in sorted(functions) if not any(covers(entry, function) for entry in entries)] == []
    assert [entry for entry in entries if not any(covers(entry, function) for function in functions)] == []


def test_a_function_that_reads_is_found():
    source = "class A:\n    def f(self):\n        def g(): return json.loads(x)\nopen(p).read()\ndef h(): return 1\n"

    assert {*reading(ast.parse(source))} == {"A.f.g", ""}
