"""The benchmark of the generator: what it says of corpora, and that it would say so if something were wrong."""

import json
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.protocols import Validator
from referencing import Registry

from benchmarks.codegen import __main__ as command
from benchmarks.codegen import suite
from benchmarks.codegen.corpora import Corpus, read
from benchmarks.codegen.measure import measure
from benchmarks.codegen.sides import Ours, ask
from benchmarks.codegen.typecheck import check
from ipybox.mcp_apigen.package.files import ToolSpec

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT.parent / "shared" / "schemas"
SHARED = [path for path in (SCHEMAS / "json-schema-test-suite", SCHEMAS / "github_tools.json") if path.exists()]

#: Seconds that the whole benchmark may take.
LIMIT = 300

TOOL: dict[str, Any] = {
    "name": "get-it",
    "description": "Gets it.",
    "inputSchema": {
        "type": "object",
        "properties": {"from": {"type": "string"}, "max-results": {"type": ["integer", "null"]}},
        "required": ["from"],
    },
    "outputSchema": {"type": "object", "properties": {"count": {"type": "integer"}}},
}
OTHER: dict[str, Any] = {"name": "other", "inputSchema": {"type": "object"}}
RESULT: dict[str, Any] = {"tools": [TOOL, OTHER]}

GROUPS: list[dict[str, Any]] = [
    {
        "description": "lengths",
        "schema": {"minLength": 2},
        "tests": [
            {"description": "long", "data": "ab", "valid": True},
            {"description": "short", "data": "a", "valid": False},
            {"description": "no string", "data": 1, "valid": True},
        ],
    },
    {
        "description": "recursion",
        "schema": {"properties": {"a": {"$ref": "#"}}, "additionalProperties": False},
        "tests": [
            {"description": "fits", "data": {"a": {"a": {}}}, "valid": True},
            {"description": "does not fit", "data": {"a": {"v": {}}}, "valid": False},
        ],
    },
    {
        "description": "reference at the root",
        "schema": {"$ref": "#/definitions/a", "definitions": {"a": {"type": "integer"}}},
        "tests": [
            {"description": "integer", "data": 1, "valid": True},
            {"description": "string", "data": "1", "valid": False},
        ],
    },
    {
        "description": "remote reference",
        "schema": {"$ref": "http://localhost:1234/integer.json"},
        "tests": [{"description": "integer", "data": 1, "valid": True}],
    },
]


def write_suite(folder: Path, groups: list[dict[str, Any]]) -> Path:
    """Writes a test suite of both drafts."""
    for draft in ("draft2020-12", "draft7"):
        (folder / "tests" / draft).mkdir(parents=True)
        (folder / "tests" / draft / "keyword.json").write_text(json.dumps(groups))
    return folder


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the benchmark writes about a corpus of our own, and about the shared ones where they are present."""
    folder = tmp_path_factory.mktemp("codegen")
    dump, results = folder / "own.json", folder / "results.json"
    dump.write_text(json.dumps(RESULT))
    files = [str(path) for path in (dump, write_suite(folder / "suite", GROUPS), *SHARED)]
    options = ["--rounds", "1", "--json", str(results)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.codegen", *files, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(results.read_text())


def test_every_module_can_be_imported(record: dict[str, Any]) -> None:
    assert [each["sides"]["ipybox"]["import_errors"] for each in record["corpora"]] == [{} for _ in record["corpora"]]


def test_arguments_are_sent_as_they_were_given(record: dict[str, Any]) -> None:
    assert [each["sides"]["ipybox"]["alias_errors"] for each in record["corpora"]] == [{} for _ in record["corpora"]]
    dumps = [each for each in record["corpora"] if not each["cases"]]
    assert [each["untried"] for each in dumps] == [[] for _ in dumps]


def test_pyright_finds_nothing(record: dict[str, Any]) -> None:
    assert record["types"]["by_rule"] == {}
    assert record["types"]["errors"] == 0


def test_verdicts_are_those_of_the_test_suite(record: dict[str, Any]) -> None:
    agreements = [each["sides"]["ipybox"]["agreement"] for each in record["corpora"] if each["name"] == "draft2020-12"]
    assert agreements
    assert min(agreements) >= 0.99


def test_sizes_and_times_are_measured(record: dict[str, Any]) -> None:
    for each in record["corpora"]:
        ours = each["sides"]["ipybox"]
        assert ours["seconds"] > 0
        assert ours["import_seconds"] > 0
        assert ours["bytes"] > 100 * each["tools"] > 0
        assert ours["tokens"] == ours["bytes"] // 4


def test_groups_with_remote_references_are_counted_and_left_out(record: dict[str, Any]) -> None:
    own = record["corpora"][1]
    assert (own["tools"], own["cases"], own["remote"]) == (3, 7, 1)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps([TOOL, OTHER]), id="list of tools"),
        pytest.param(json.dumps(RESULT, indent=1), id="result"),
        pytest.param(json.dumps({"jsonrpc": "2.0", "id": 1, "result": RESULT}), id="response"),
        pytest.param(json.dumps([{"result": {"tools": [TOOL]}}, {"tools": [OTHER]}]), id="list of both"),
        pytest.param(f"{json.dumps(TOOL)}\n\n{json.dumps(OTHER)}\n", id="lines of tools"),
        pytest.param(f"{json.dumps({'tools': [TOOL]})}\n{json.dumps({'tools': [OTHER]})}", id="lines of results"),
        pytest.param("\ufeff" + json.dumps(RESULT), id="byte order mark"),
    ],
)
def test_dumps_of_all_shapes_have_the_same_tools(tmp_path: Path, text: str) -> None:
    path = tmp_path / "server.json"
    path.write_text(text, encoding="utf-8")
    expected = [
        ToolSpec("get-it", "Gets it.", TOOL["inputSchema"], TOOL["outputSchema"]),
        ToolSpec("other", None, {"type": "object"}),
    ]
    assert read(path) == [Corpus("server", expected)]


def test_each_file_of_a_directory_is_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/c.jsonl", "a.json", "notes.txt"):
        (tmp_path / name).write_text(json.dumps(TOOL))
    assert [corpus.name for corpus in read(tmp_path)] == ["a", "b/c"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(None, "No such file or directory", id="no file"),
        pytest.param(b"x", "no JSON: Expecting value: line 1 column 1 (char 0)", id="no JSON"),
        pytest.param(
            b"{}\n{\n", "no JSON in line 2: Expecting property name enclosed in double quotes at column 2", id="line"
        ),
        pytest.param(b"\xff", "not UTF-8, at byte 0", id="no text"),
        pytest.param(b"[" * 100_000, "nested too deeply", id="deep"),
        pytest.param(b"[]", "no tools in it", id="no tools"),
        pytest.param(b'{"tools": []}', "no tools in it", id="empty result"),
        pytest.param(b"[1]", "neither tools nor a result of tools/list: 1", id="other JSON"),
        pytest.param(b'{"a": 1}', "neither tools nor a result of tools/list: an object with a", id="other object"),
        pytest.param(b'{"inputSchema": {}}', 'a tool has no name: {"inputSchema": {}}', id="no name"),
    ],
)
def test_what_is_no_corpus_is_a_line_and_an_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    problem: str,
) -> None:
    path = tmp_path / "dump.json"
    if content is not None:
        path.write_bytes(content)
    assert run([str(path), "--no-types"], monkeypatch) == 2
    assert capsys.readouterr().err == f"benchmarks.codegen: {path}: {problem}\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        pytest.param(["--rounds", "0"], "--rounds must be at least 1", id="rounds"),
        pytest.param(["--json", "/nowhere/at/all"], "/nowhere/at/all: no such directory", id="json"),
        pytest.param(["--peer", "no-python"], "no-python is no interpreter: No such file or directory", id="no peer"),
    ],
)
def test_options_without_sense_are_a_line_and_an_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    problem: str,
) -> None:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps(RESULT))
    assert run([str(path), "--no-types", *options], monkeypatch) == 2
    assert capsys.readouterr().err == f"benchmarks.codegen: {problem}\n"


def test_a_peer_without_the_generator_is_a_line_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, environment = tmp_path / "dump.json", tmp_path / "environment"
    path.write_text(json.dumps(RESULT))
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    assert run([str(path), "--no-types", "--peer", str(python)], monkeypatch) == 2
    assert capsys.readouterr().err == f"benchmarks.codegen: {python} has no datamodel-code-generator\n"


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command line in this process and returns its exit code."""
    monkeypatch.setattr(sys, "argv", ["benchmarks.codegen", *arguments])
    with pytest.raises(SystemExit) as ended:
        command.main()
    return ended.value.code


def test_wrong_verdicts_are_reported_with_their_place(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {
            "description": "type",
            "schema": {"type": "integer"},
            "tests": [
                {"description": "text", "data": "1", "valid": True},
                {"description": "integer", "data": 1, "valid": False},
                {"description": "other text", "data": "x", "valid": False},
            ],
        }
    ]
    corpus = read(write_suite(tmp_path / "suite", wrong))[0]
    outcome = measure(corpus, "p", {"ipybox": Ours(tmp_path)}, rounds=1).outcomes["ipybox"]
    assert [(each.reason, each.place) for each in outcome.disagreements] == [
        ("false reject", "keyword: type: text"),
        ("false accept", "keyword: type: integer"),
    ]


BROKEN = """
from pydantic import ConfigDict
from ipybox.guest.tools.models import Input

class Params(Input):
    model_config = ConfigDict(extra="allow")
    known: int

    def wire_form(self):
        return {"known": float(self.known), "more": None}
"""


def test_what_is_lost_on_the_way_is_reported(tmp_path: Path) -> None:
    package = tmp_path / "mcptools" / "p"
    package.mkdir(parents=True)
    (package / "broken.py").write_text(BROKEN)
    (package / "missing.py").write_text("import there_is_no_such_module")
    work: dict[str, Any] = {
        "broken": {
            "values": [{"known": 1, "dropped": 2}, {"known": "x"}],
            "named": ["known", "dropped"],
            "cases": [{"known": 1}, {"known": "x"}],
        },
        "missing": {"values": [{}], "named": [], "cases": [{}]},
    }
    answer = ask(sys.executable, "load.py", {"root": str(tmp_path), "package": "p", "modules": work})["modules"]
    assert answer["broken"]["losses"][:3] == ["lost: dropped", "added: more", "changed: known"]
    assert answer["broken"]["losses"][3].startswith("refused: ValidationError")
    assert answer["broken"]["verdicts"] == ["accepted", "refused"]
    assert answer["missing"] == {
        "import_error": "ModuleNotFoundError: No module named 'there_is_no_such_module'",
        "losses": [],
        "verdicts": ["crash: not imported"],
    }


def test_type_errors_are_reported_with_rule_and_place(tmp_path: Path) -> None:
    package = tmp_path / "mcptools" / "p"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "tool.py").write_text('x: int = "x"\n')
    types = check(tmp_path)
    assert types.by_rule == {"reportAssignmentType": 1}
    assert [(each.package, each.module) for each in types.of("p")] == [("p", "tool")]


@pytest.mark.parametrize(("draft", "validator"), [("draft2020-12", Draft202012Validator), ("draft7", Draft7Validator)])
def test_wrapping_a_schema_changes_no_verdict(tmp_path: Path, draft: str, validator: type[Validator]) -> None:
    folders = [write_suite(tmp_path, GROUPS), *(path for path in SHARED if path.is_dir())]
    for folder in folders:
        tools, cases, _ = suite.read(folder / "tests" / draft)
        assert cases
        wrong = [case.place for case in cases if not agrees(validator, tools[case.tool].input_schema, case)]
        assert wrong == []


def agrees(validator: type[Validator], schema: Any, case: suite.Case) -> bool:
    """Whether `jsonschema` says of a wrapped value what the suite says of the value."""
    try:
        return validator(schema, registry=Registry()).is_valid({"v": case.data}) == case.valid
    except re.error:
        return True  # a pattern that Python does not know
