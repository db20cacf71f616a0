"""DataFrames and Series as tables, and how much of them."""

import json
from importlib import import_module
from typing import Any

import pytest

from ipybox.guest.display_data.tables import MAX_COLUMNS, MAX_ROWS, table_of, table_of_series
from ipybox.guest.display_data.values import MAX_VALUES

pandas: Any = import_module("pandas")


class Hostile:
    def __repr__(self) -> str:
        raise ValueError("no text")


def fields_of(table: dict[str, Any]) -> dict[str, str]:
    assert json.loads(json.dumps(table, allow_nan=False)) == table
    return {field["name"]: field["type"] for field in table["schema"]["fields"]}


def test_a_frame_is_records_with_a_schema():
    assert table_of(pandas.DataFrame({"city": ["Bonn", None], "size": [1, 2]})) == {
        "profile": "tabular-data-resource",
        "schema": {"fields": [{"name": "city", "type": "string"}, {"name": "size", "type": "integer"}]},
        "data": [{"city": "Bonn", "size": 1}, {"city": None, "size": 2}],
        "total_rows": 2,
        "total_columns": 2,
        "truncated": False,
    }


@pytest.mark.parametrize(
    ("values", "type_", "cells"),
    [
        ([True, False], "boolean", [True, False]),
        ([1.5, float("inf")], "number", [1.5, None]),
        (pandas.array([1, None], dtype="Int64"), "integer", [1, None]),
        (pandas.to_datetime(["2024-01-02", None]), "datetime", ["2024-01-02T00:00:00", None]),
        (pandas.to_timedelta(["1D", None]), "duration", ["P1DT0H0M0S", None]),
        (pandas.Categorical(["x", "y"]), "string", ["x", "y"]),
        ([1, "x"], "any", [1, "x"]),
        ([[1], {"a": 2}], "string", ["[1]", "{'a': 2}"]),
        ([10**30, Hostile()], "string", [str(10**30), "<Hostile>"]),
    ],
)
def test_each_type_has_values_that_json_has(values: Any, type_: str, cells: list[Any]):
    table = table_of(pandas.DataFrame({"a": values}))

    assert fields_of(table) == {"a": type_}
    assert [row["a"] for row in table["data"]] == cells


def test_an_index_that_says_something_is_the_primary_key():
    named = table_of(pandas.DataFrame({"a": [1]}, index=pandas.Index(["x"], name="key")))
    filtered = table_of(pandas.DataFrame({"a": [1, 2]}).iloc[1:])
    levels = table_of(pandas.DataFrame({"a": [1]}, index=pandas.MultiIndex.from_tuples([("x", 2)])))

    assert (named["schema"]["primaryKey"], named["data"]) == (["key"], [{"key": "x", "a": 1}])
    assert (filtered["schema"]["primaryKey"], filtered["data"]) == (["index"], [{"index": 1, "a": 2}])
    assert levels["data"] == [{"level_0": "x", "level_1": 2, "a": 1}]


def test_each_column_has_a_name_of_its_own():
    same = table_of(pandas.DataFrame([[1, 2, 3]], columns=["a", "a.1", "a"]))
    levels = table_of(pandas.DataFrame([[1, 2]], columns=pandas.MultiIndex.from_tuples([("a", 1), ("a", 2)])))

    assert same["data"] == [{"a": 1, "a.1": 2, "a.2": 3}]
    assert levels["data"] == [{"a.1": 1, "a.2": 2}]


def test_a_series_is_a_table_with_one_column():
    assert table_of_series(pandas.Series([1], name="a"))["data"] == [{"a": 1}]
    assert table_of_series(pandas.Series([1]))["data"] == [{"values": 1}]


def test_a_table_is_bounded_and_says_so():
    long = table_of(pandas.DataFrame({"a": range(100_000)}))
    wide = table_of(pandas.DataFrame([range(300)] * 1000))
    heavy = table_of(pandas.DataFrame({"a": ["x" * 100_000] * 100, "b": [["y" * 1000] * 1000] * 100}))

    assert (len(long["data"]), long["total_rows"], long["truncated"]) == (MAX_ROWS, 100_000, True)
    assert (len(wide["data"]), wide["total_columns"], wide["truncated"]) == (MAX_VALUES // MAX_COLUMNS, 300, True)
    assert (len(heavy["data"]), heavy["truncated"]) == (100, True)
    assert len(json.dumps(heavy)) < 200_000
