from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

import pytest
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from ipybox.codeact.rules import improper_types


class Model(BaseModel):
    name: str


class Typed(TypedDict):
    name: str


class Named(NamedTuple):
    name: str


Names = TypeAliasType("Names", list[str])
Things = TypeAliasType("Things", tuple[object, ...])


@pytest.mark.parametrize(
    "result",
    [
        *(None, str, datetime, Path, Model, Typed, Named, ValueError, Literal["a"]),
        *(list[str], tuple[int, ...], dict[str, Model] | None, Names),
    ],
    ids=str,
)
def test_models_plain_types_and_containers_of_them_are_results(result: Any):
    assert list(improper_types(result)) == []


@pytest.mark.parametrize(
    ("result", "improper"),
    [
        (object, ["object"]),
        (list, ["list"]),
        (dict, ["dict"]),
        (Model(name="x"), ["name='x'"]),
        (list[object] | complex, ["object", "complex"]),
        (Things, ["object"]),
        (TypeVar("T"), ["~T"]),
    ],
    ids=str,
)
def test_what_else_is_in_a_result_is_named(result: Any, improper: list[str]):
    assert list(improper_types(result)) == improper
