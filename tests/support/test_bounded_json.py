"""How many values JSON contains is estimated before it is parsed, in one way for rare and for frequent separators."""

import json

import pytest

from ipybox.support.bounded_json import MAX_VALUES, count_values, exceeds_value_limit


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000])
@pytest.mark.parametrize("separator", [",", "[", "{"])
def test_rare_and_frequent_separators_are_counted(separator: str, count: int) -> None:
    data = f"x{separator}y".join(["z"] * (count + 1)).encode()

    assert count_values(data, enough=1000) == count


def test_separators_in_strings_are_no_values() -> None:
    data = json.dumps({"text": 'a "quoted" , [ and \\ {' * 1000, "numbers": list(range(40))}).encode()

    assert count_values(data, enough=10) == 42  # of the object and its two members, and the array and its others


@pytest.mark.parametrize(("values", "exceeds"), [(MAX_VALUES - 10, False), (MAX_VALUES + 10, True)])
def test_only_more_values_than_the_limit_exceed_it(values: int, exceeds: bool) -> None:
    assert exceeds_value_limit(b"[" + b"1," * values + b"1]") is exceeds
    assert not exceeds_value_limit(b'["' + b"1," * values + b'1"]')
