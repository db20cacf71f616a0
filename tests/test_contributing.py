"""CONTRIBUTING.md follows a cell and a tool call through the code: what it names is there."""

import ast
import re
from pathlib import Path

import pytest

from tests.servers import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()

#: The walks by their headings.
WALKS = ("One cell, step by step", "One tool call, step by step")

STEP = re.compile(r"^\d+\. `([\w/]+\.py)`: `([\w.]+)`(?: or `(\w+)`)? ", re.MULTILINE)


def section(heading: str) -> str:
    """Returns the text below a heading, with each item of a list in one line."""
    return re.sub(r"\n +", " ", TEXT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0])


def defined_in(path: Path) -> set[str]:
    """Returns the names of functions, classes and methods of a module."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            names |= {f"{node.name}.{method.name}" for method in methods}
    return names


@pytest.mark.parametrize("heading", WALKS)
def test_a_walk_has_at_most_eight_steps_each_with_file_and_function(heading: str):
    lines = [line for line in section(heading).splitlines() if line]

    assert len(lines) <= 8
    assert [line for line in lines if STEP.match(line) is None] == []


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (file, name)
        for heading in WALKS
        for file, first, other in STEP.findall(section(heading))
        for name in (first, other and f"{first.rpartition('.')[0]}.{other}")
        if name
    ],
)
def test_what_a_step_names_is_there(file: str, name: str):
    assert name in defined_in(ROOT / "ipybox" / file)


def test_the_layout_has_each_package():
    packages = {path.parent.name for path in (ROOT / "ipybox").glob("*/__init__.py")}

    assert set(re.findall(r"^\| `(\w+)/`", section("The layout of `ipybox/`"), re.MULTILINE)) == packages
