"""A first parser of a tool's output, inferred from its results."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ipybox import CodeExecutionError, CodeExecutor
from ipybox.codeact import suggest_parser
from ipybox.codeact.suggestion import infer_models, samples_of
from ipybox.mcp_apigen.package.files import ToolSpec, render_package
from tests.conftest import Mode
from tests.written_packages import write_package


class Wrapped(BaseModel):
    result: str


class Structured(BaseModel):
    count: int
    names: list[str]


@pytest.mark.parametrize(
    ("results", "values", "expression"),
    [
        (['{"a": 1}', '{"a": 2}'], [{"a": 1}, {"a": 2}], "json.loads(result)"),
        (["{'a': None}"], [{"a": None}], "ast.literal_eval(result)"),
        (["[1, 2]"], [{"items": [1, 2]}], "{'items': json.loads(result)}"),
        (["3"], [{"value": 3}], "{'value': json.loads(result)}"),
        ([{"a": 1}], [{"a": 1}], "json.loads(result)"),
        ([Wrapped(result='{"a": 1}')], [{"a": 1}], "json.loads(result.result)"),
        ([Wrapped(result="[{'a': 1}]")], [{"items": [{"a": 1}]}], "{'items': ast.literal_eval(result.result)}"),
        (
            [Structured(count=1, names=["a"])],
            [{"count": 1, "names": ["a"]}],
            'result.model_dump(mode="json", by_alias=True)',
        ),
    ],
)
def test_results_become_samples(results: list[object], values: list[object], expression: str):
    assert samples_of(results) == (values, expression)


@pytest.mark.parametrize(
    ("results", "reason"),
    [
        (["Not Found: no such repository"], "neither JSON nor a Python literal"),
        ([Wrapped(result="words")], "neither JSON nor a Python literal"),
        (["{'a': b'bytes'}"], "neither JSON nor a Python literal"),
        (["[" * 100_000], "neither JSON nor a Python literal"),
        (['{"a": 1}', "[1]"], "differ in kind"),
    ],
)
def test_what_is_no_sample_is_refused(results: list[str], reason: str):
    with pytest.raises(ValueError, match=reason):
        samples_of(results)


def test_names_of_samples_become_nothing_but_names():
    hostile = ['x"""\nimport os', "__init__", "model_config", "class", "a b", "Field", "print(1)", "\u202e"]
    sample = {name: {"params": {name: 1}} for name in hostile} | {"Params": {"a": 1}, "Result": [{"b": 1}]}

    models = infer_models([sample], {"Params", "Result"})

    tree = ast.parse(models)
    assert {type(node) for node in tree.body} == {ast.ImportFrom, ast.ClassDef}
    assert {"Params", "Result", "Field"}.isdisjoint(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    namespace: dict[str, object] = {}
    exec(models, namespace)  # a test may: it was looked at above
    parsed = namespace["ParseResult"]
    assert isinstance(parsed, type)
    assert issubclass(parsed, BaseModel)
    assert parsed.model_validate(sample).model_dump(by_alias=True) == sample


def test_models_have_the_types_of_all_samples_under_names_that_are_free():
    samples: list[dict[str, Any]] = [
        {"id": 1, "size": 1, "tags": [], "ok": True, "a": {"x": None}, "class": "b", "mixed": [1, "c", {}]},
        {"id": None, "size": 2.5, "tags": [], "ok": False, "A": [[{"y": "d"}], []], "class": "e", "mixed": []},
    ]

    assert infer_models(samples, ("A",)).split("\n\n\n")[1:] == [
        "class A_2(BaseModel):\n    x: None",
        "class MixedItem(BaseModel):\n    pass",
        "class AItemItem(BaseModel):\n    y: str",
        "class ParseResult(BaseModel):\n    id: int | None\n    size: float\n    tags: list[Any]\n    ok: bool\n"
        "    a: A_2 | None = None\n    class_2: str = Field(alias='class')\n    mixed: list[MixedItem | int | str]\n"
        "    A: list[list[AItemItem]] | None = None",
    ]


@pytest.mark.parametrize(
    ("sample", "error", "reason"),
    [
        (json.loads('{"a": ' * 600 + "1" + "}" * 600), ValueError, "nested too deeply"),
        ({"a": float("nan")}, ValueError, "not JSON compliant"),
        ({"a": b"bytes"}, TypeError, "bytes is not JSON serializable"),
    ],
    ids=["deep", "no_number", "bytes"],
)
def test_what_no_models_can_be_inferred_from_is_an_error(sample: object, error: type[Exception], reason: str):
    with pytest.raises(error, match=reason):
        infer_models([sample], ())


def test_an_unknown_tool_a_parsed_one_and_no_sample_are_errors(good: Path):
    with pytest.raises(LookupError, match=r"no tool github\.commits in mcptools: tools\(.github.commits.\) lists"):
        suggest_parser("github.commits", "{}", workspace=good)
    with pytest.raises(ValueError, match=r"github\.search_repositories already has a parser: fix mcpparse/github"):
        suggest_parser("mcptools.github.search_repositories", "{}", workspace=good)
    with pytest.raises(ValueError, match=r"no samples: pass what the tool's run\(\) returned"):
        suggest_parser("github.list_commits", workspace=good)


async def test_a_kernel_writes_parsers_that_check_accepts(tmp_path: Path, mode: Mode):
    output = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
    tools = [
        ToolSpec("words", "Says words.", {}),
        ToolSpec("count", "Counts.", {}, output),
    ]
    write_package(tmp_path / "mcptools" / "zoo", render_package("zoo", {"command": "x"}, tools, "seal"))
    first, *others = [json.dumps({"Params": each}) for each in ([{"sha": "a", "x y": 1}], [{"sha": "b"}], [])]
    code = f"""
from ipybox.codeact import check, suggest_parser
from mcptools.zoo.count import Result
print(suggest_parser("zoo.words", {first!r}, *{others!r}))
print(suggest_parser("mcptools.zoo.count", Result(count=3)))
print(check())
from mcpparse.zoo import count, words
print(words.parse({first!r}))
from mcptools.zoo.count import Result
print(count.parse(Result(count=4)))
"""
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        printed = (await executor.execute(code)).text or ""
        with pytest.raises(CodeExecutionError, match="words returned an unknown format"):
            await executor.execute("words.parse('[]')")

    assert printed.startswith("wrote mcpparse/zoo/words.py, and to the end of mcptools/zoo/words.py:\n")
    assert "    sha: str\n    x_y: int | None = Field(" in printed
    assert printed.endswith("ok: 0 gentools, 2 parsers\nParams=[ParamsItem(sha='a', x_y=1)]\ncount=4")
