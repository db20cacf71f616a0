"""The JSON-Schema-Test-Suite as tools with one argument, `v`, and as cases: values that its schema accepts or not.

Optional tests are not read. Groups whose schema refers to something outside itself are omitted: a server's schema
stands alone, and nothing is ever fetched.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from referencing import Registry, Resource, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7, DRAFT202012

from ipybox.mcp_apigen.package.files import ToolSpec
from ipybox.mcp_apigen.schema.values import is_object

_NEWEST = "draft2020-12"
_URIS = {
    _NEWEST: "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}
_SPECIFICATIONS: dict[str, Specification[Any]] = {_NEWEST: DRAFT202012, "draft7": DRAFT7}
#: The folders of the suite that are read.
DRAFTS = tuple(_URIS)
_REFERENCES = ("$ref", "$dynamicRef")
#: Makes a schema a resource of its own, in which its references mean what they meant before it was wrapped.
_OWN_ID = "urn:ipybox:v"


@dataclass(frozen=True)
class Case:
    """One test of the suite.

    Attributes:
        tool: The index of the tool that was made of its group's schema.
        place: File, group and test, for people.
        data: The value of `v`.
        valid: Whether the schema accepts it.
    """

    tool: int
    place: str
    data: Any
    valid: bool


def read(folder: Path) -> tuple[list[ToolSpec], list[Case], int]:
    """The tools and cases of one draft's folder, and the number of omitted groups."""
    tools: list[ToolSpec] = []
    cases: list[Case] = []
    remote = 0
    for file, group in _groups(folder):
        schema = group["schema"]
        if not _stands_alone(schema, folder.name):
            remote += 1
            continue
        place = f"{file}: {group['description']}"
        cases += [
            Case(len(tools), f"{place}: {test['description']}", test["data"], test["valid"]) for test in group["tests"]
        ]
        tools.append(ToolSpec(f"{file}_{len(tools)}", place, wrapped(schema, folder.name)))
    return tools, cases, remote


def wrapped(schema: Any, draft: str) -> dict[str, Any]:
    """The schema of an object that requires a property `v` of this schema."""
    wrapper = {"type": "object", "properties": {"v": _own_resource(schema, draft)}, "required": ["v"]}
    return wrapper if draft == _NEWEST else {"$schema": _URIS[draft], **wrapper}


def _groups(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.glob("*.json")):
        for group in json.loads(path.read_bytes()):
            yield path.stem, group


def _stands_alone(schema: Any, draft: str) -> bool:
    if is_object(schema) and schema.get("$schema", _URIS[draft]) != _URIS[draft]:
        return False  # the meaning of its keywords is defined elsewhere
    root = _SPECIFICATIONS[draft].create_resource(schema)
    resolver = Registry[Any]().with_resource("", root).resolver_with_root(root)
    try:
        _resolve_all(root, resolver)
    except Unresolvable:
        return False
    return True


def _resolve_all(resource: Resource[Any], resolver: Any) -> None:
    for keyword in _REFERENCES:
        if is_object(resource.contents) and keyword in resource.contents:
            resolver.lookup(resource.contents[keyword])
    for inner in resource.subresources():
        _resolve_all(inner, resolver.in_subresource(inner))


def _own_resource(schema: Any, draft: str) -> Any:
    text = json.dumps(schema)
    if not is_object(schema) or "$id" in schema or not any(f'"{key}"' in text for key in (*_REFERENCES, "$anchor")):
        return schema
    if draft != _NEWEST and "$ref" in schema:
        # Next to `$ref`, drafts up to 7 ignore everything, `$id` too; only definitions are still referred to.
        kept = {key: value for key, value in schema.items() if key == "definitions"}
        return {"$id": _OWN_ID, "allOf": [{"$ref": schema["$ref"]}], **kept}
    return {"$id": _OWN_ID, **schema}
