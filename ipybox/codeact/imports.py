"""What a module imports, by absolute names."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Import:
    """A name that an import statement binds.

    Attributes:
        node: The statement.
        source: What is imported, with its package, as `gentools.github.commits.api.Repo`.
        bound: The name it is bound to.
    """

    node: ast.Import | ast.ImportFrom
    source: str
    bound: str


def imports(statements: Iterable[ast.stmt], package: str) -> Iterator[Import]:
    """What these statements import, those within them included, in a module of this package."""
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(node, alias.name, alias.asname or alias.name)
            elif isinstance(node, ast.ImportFrom):
                source = _absolute(node, package)
                for alias in node.names:
                    yield Import(node, f"{source}.{alias.name}", alias.asname or alias.name)


def is_under(source: str, *names: str) -> bool:
    """Whether this is one of the names, or something in it."""
    return any(source == name or source.startswith(f"{name}.") for name in names)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = parts[: max(0, len(parts) - node.level + 1)]
    return ".".join([*base, *([node.module] if node.module else [])])
