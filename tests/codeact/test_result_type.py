from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import pytest
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from ipybox.codeact.rules import vague_types


class Model(BaseModel):
    name: str


class Typed(TypedDict):
    name: str


class Named(NamedTuple):
    name: str


Names = TypeAliasType("Names", list[str])


@pytest.mark.parametrize(
    "result",
    [
        *(None, str, datetime, Path, Model, Typed, Named, ValueError, Literal["a"]),
        *(list[str], tuple[int, ...], dict[str, Model] | None, Names),
    ],
    ids=str,
)
def test_models_plain_types_and_containers_of_them_are_results(result: Any):
    assert list(vague_types(result)) == []


@pytest.mark.parametrize(
    ("result", "vague"),
    [
        (object, ["object"]),
        (list, ["list"]),
        (dict, ["dict"]),
        (dict[str, Any], ["Any"]),
        (list[object] | Mapping, ["object", "Mapping"]),
    ],
    ids=str,
)
def test_types_that_say_nothing_about_their_content_are_named(result: Any, vague: list[str]):
    assert list(vague_types(result)) == vague
