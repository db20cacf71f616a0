"""How many values JSON contains is estimated before it is parsed, in one way for rare and for frequent separators."""

import json
import threading
import time
from typing import Any

import pytest

from ipybox.support import bounded_json
from ipybox.support.bounded_json import MAX_VALUES, count_values, exceeds_value_limit, loads, takes_long


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


@pytest.mark.parametrize(
    ("data", "takes"),
    [(b"1," * (1 << 17), True), (b"1," * 1000, False), (b"x" * 1_000_000, False), (b"x" * (2 << 20), True)],
)
def test_only_many_values_or_much_text_take_long_to_parse(data: bytes, takes: bool) -> None:
    assert takes_long(b"[1" + data + b"]") is takes


TEXTS = [
    '[1,-2.5e3,NaN,"a\\"b",true,null]',
    ' {"a": [ ], "b":{"a":[[{}]]}, "a": 2 } ',
    "[,1]",
    '{"a"}',
    "[1]x",
    "[",
    '{"a":',
    "1,",
]


@pytest.mark.parametrize("text", [*TEXTS, "[" * 100_000])
def test_json_of_many_values_is_parsed_as_any_other(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def parsed(parse: Any) -> str:
        try:
            return repr(parse(text))
        except (ValueError, RecursionError) as exc:
            return type(exc).__name__

    expected = parsed(json.loads)
    monkeypatch.setattr(bounded_json, "MANY_VALUES", 0)

    assert parsed(loads) == expected


def test_other_threads_run_while_many_values_are_parsed() -> None:
    turns, parsed = 0, list[Any]()
    thread = threading.Thread(target=lambda: parsed.append(loads("[" + "[1,2]," * 200_000 + "0]")))
    thread.start()
    while thread.is_alive():
        time.sleep(0)
        turns += 1

    assert len(parsed[0]) == 200_001
    assert turns > 20  # once or twice while Python's own parser runs


def test_other_threads_run_while_long_numbers_are_parsed() -> None:
    turns, parsed = 0, list[Any]()
    thread = threading.Thread(target=lambda: parsed.append(loads("[" + "9" * 4300 + f",{'9' * 4300}" * 4000 + "]")))
    thread.start()
    while thread.is_alive():
        time.sleep(0)
        turns += 1

    assert len(parsed[0]) == 4001
    assert turns > 20
