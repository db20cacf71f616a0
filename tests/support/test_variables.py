"""Variables on their way between application and kernel: what arrives exactly, and what is refused on either side."""

import json
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy
import pandas  # pyright: ignore[reportMissingTypeStubs] - it has none
import pyarrow  # pyright: ignore[reportMissingTypeStubs] - it has none
import pytest

from ipybox.errors import VariableError
from ipybox.support import variables
from ipybox.support.variables import EncodedVariable, check_name, decode, encode

pa: Any = pyarrow
pd: Any = pandas
np: Any = numpy


def sent(value: Any) -> Any:
    return decode(encode("x", value))


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    "value",
    [None, True, 10**4300 - 1, -0.0, 0.1, float("inf"), "", "ä\0\u2028", "\ud83d\ude00\udc80", nested(97)],
    ids=lambda value: repr(value)[:20],
)
def test_json_values_arrive_exactly(value: Any):
    arrived = sent({"a": [value]})["a"][0]

    assert (repr(arrived), type(arrived)) == (repr(value), type(value))


def test_what_has_no_type_in_json_arrives_as_the_type_that_it_extends():
    value: Any = {
        "t": (1, "a"),
        "o": OrderedDict({"b": 1}),
        "i": np.int64(3),
        "f": np.float32(0.5),
        "n": np.float64("nan"),
    }

    arrived = sent(value)

    assert repr(arrived) == "{'t': [1, 'a'], 'o': {'b': 1}, 'i': 3, 'f': 0.5, 'n': nan}"
    assert [type(item) for item in arrived.values()] == [list, dict, int, float, float]


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ([{"y": b"1"}], "x[0].y is of type bytes, which can't be sent: send text, such as value.decode()"),
        ({"a b": {1: 2}}, "x['a b'] has a key of type int: keys must be str"),
        ({1, 2}, "x is of type set, which can't be sent: send a list"),
        (10**4300, "x is an int with more than 4,300 digits"),
        (np.arange(2), "x is of type numpy.ndarray, which can't be sent: send value.tolist()"),
        (pd.Series([1]), "x is of type pandas.Series, which can't be sent: send value.to_frame()"),
        ([pd.DataFrame()], "x[0] is a table (pandas): send it as a separate variable"),
        (CYCLE, "is nested too deeply, or contains itself; the limit is 100 levels"),
        ("x" * (64 << 20), "x: too large: 64 MiB; the limit is 64 MiB"),
        ([0] * 3_100_000, "x has too many values; the limit is 3,000,000"),
        (
            pd.DataFrame({"a": [1, "b"]}),
            "x can't be sent as an Arrow table: it is rejected by its library: ArrowInvalid",
        ),
        (pd.DataFrame({("a", "b"): [1]}), "it has multi-level column labels"),
        (pd.DataFrame({1: [1], "b": [2]}), "it has column labels that are not all str"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([1], name=7)), "it has an index named 7: use a str as its name"),
        (pd.DataFrame({"p": pd.period_range("2020", periods=2, freq="M")}), "it has a column 'p' of type extension"),
        (pa.table({"v": pa.array(["b"], pa.string_view())}), "it has a column 'v' of type string_view"),
    ],
    ids=range(16),
)
def test_what_can_not_be_sent_is_an_error_that_names_its_place(value: Any, error: str):
    with pytest.raises(VariableError) as raised:
        encode("x", value)

    assert error in str(raised.value)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(),
        pd.DataFrame([[1, 2.5]]),
        pd.DataFrame({"a": [1, 2]}, index=pd.Index([5, 6], name="k")),
        pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(10, 30, 10, name="r")),
        pd.DataFrame({"a": [1, 2]}, index=pd.MultiIndex.from_tuples([(1, "a"), (1, "b")], names=["i", None])),
        pd.DataFrame({"a": [1, 2]}, index=pd.to_datetime(["2020-01-01", "2021-01-01"])),
        pd.DataFrame(
            {
                "text": ["a", None],
                "nothing": [None, None],
                "category": pd.Categorical(["u", "v"]),
                "nullable": pd.array([1, None], dtype="Int64"),
                "boolean": pd.array([True, None], dtype="boolean"),
                "zone": pd.to_datetime(["2020-01-01", "2021-01-01"]).tz_localize("Europe/Berlin"),
                "bytes": np.array([1, 2], dtype="u1"),
                "arrow": pd.array([1, 2], dtype="int64[pyarrow]"),
                "span": pd.to_timedelta([1, 2], unit="s"),
            }
        ),
    ],
    ids=["empty", "numbered", "index", "range", "levels", "dates", "dtypes"],
)
def test_data_frames_arrive_with_their_index_and_dtypes(frame: Any):
    pd.testing.assert_frame_equal(sent(frame), frame, check_freq=False)


@pytest.mark.parametrize("values", [[{"a": 1}, {"b": 1}], [[{"a": 1}], []]], ids=["dicts", "lists"])
def test_data_frames_with_dicts_are_refused(values: list[Any]):
    with pytest.raises(VariableError, match=r"x can't be sent .* has dicts in column 'o': send df.to_dict"):
        encode("x", pd.DataFrame({"o": values}))


def test_tables_of_pyarrow_arrive():
    table = pa.table({"a": [1, None], "nested": [[{"b": "c"}], []], "exact": [Decimal("1.50"), None]})

    assert sent(table).equals(table)


@pytest.mark.parametrize("name", ["", "1a", "a.b", "a b", "None", "class", "__name__", "\N{LATIN SMALL LIGATURE FI}"])
def test_names_that_code_can_not_use_are_refused(name: str):
    with pytest.raises(ValueError, match="can't name a variable"):
        check_name(name)


def changed(table: Any, change: Callable[[dict[str, Any]], Any], encoding: str = "pyarrow") -> bytes:
    """Returns a table on its way after a change of its header."""
    data = encode("x", table).data if encoding == "pyarrow" else encode("x", table.to_pandas()).data
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    written = json.dumps(header).encode()
    return len(written).to_bytes(8, "little") + written + bytes(-len(written) % 8) + data[8 + size + -size % 8 :]


def of_type(kind: Any, sizes: list[list[int | None]], body: bytes = bytes(64)) -> bytes:
    """Returns a table of one column, whose buffers are as long as `sizes` says."""
    header = {"columns": [["a", True, kind]], "sizes": sizes, "pandas": None}
    return changed(pa.table({}), lambda written: written.update(header)) + body


def repeated(times: int) -> bytes:
    """Returns a table whose columns would all have the same bytes."""
    header = {"columns": [[f"c{n}", True, "int64"] for n in range(times)], "sizes": [[100_000, None, 800_000]] * times}
    return changed(pa.table({"a": np.zeros(100_000)}), lambda written: written.update(header))


NUMBERS = pa.table({"a": [1, 2]})


def nested_type(depth: int) -> Any:
    return ["list_", [["item", True, nested_type(depth - 1)]]] if depth else "null"


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("json", b"[" * 100_000),
        ("json", b"no JSON"),
        ("json", b"9" * 5000),
        ("json", b"[" + b"0," * 3_100_000 + b"0]"),
        ("json", b"x" * (variables.MAX_BYTES + 1)),
        ("pickle", b""),
        ("pyarrow", b""),
        ("pyarrow", b"\xff" * 100),
        ("pyarrow", encode("x", NUMBERS).data[:-8]),
        ("pyarrow", changed(NUMBERS, lambda header: header.clear())),
        ("pyarrow", changed(NUMBERS, lambda header: header["sizes"][0].__setitem__(0, 1 << 62))),
        ("pyarrow", changed(NUMBERS, lambda header: header["sizes"][0].__setitem__(0, -1))),
        ("pyarrow", changed(NUMBERS, lambda header: header["sizes"][0].__setitem__(2, -8))),
        ("pyarrow", changed(NUMBERS, lambda header: header["sizes"].clear())),
        ("pyarrow", changed(NUMBERS, lambda header: header["columns"].extend(header["columns"]))),
        ("pyarrow", changed(pa.table({}), lambda header: header["columns"].extend([0] * 600_000))),
        ("pyarrow", repeated(3500)),
        ("pyarrow", of_type("string", [[1, None, 8, 1]], b"\0\0\0\0\1\0\0\0\xff")),  # no text
        ("pyarrow", of_type("string", [[1, None, 8, 1]], b"\0\0\0\0\x7f\0\0\0a")),  # text beyond its buffer
        ("pyarrow", of_type(["dictionary", "int8", "string", False], [[4, None, 4], [0, None, 0, 0]])),
        (
            "pyarrow",
            of_type(["list_", [["item", True, ["dictionary", "int8", "null", False]]]], [[1, None, 8], [0], [0]]),
        ),
        ("pyarrow", of_type(["dictionary", "int8", ["struct", []], False], [[0, None, 0], [0, None]])),
        ("pyarrow", of_type(nested_type(40), [[0, None, 0]] * 40 + [[0, None]])),
        ("pyarrow", of_type("string_view", [[0, None, 0]])),
        ("pyarrow", of_type("null", [[1 << 20, None]])),
        ("pyarrow", of_type("null", [[1 << 24, None]], bytes(1 << 24))),
        ("pandas", of_type("bool", [[1 << 24, 1 << 21, 1 << 21]], bytes(1 << 22))),
        ("pandas", encode("x", NUMBERS).data),
    ],
    ids=range(28),
)
def test_hostile_data_is_refused(encoding: str, data: bytes):
    before = pa.total_allocated_bytes()
    with pytest.raises(VariableError):
        decode(EncodedVariable("x", encoding, data))
    assert pa.total_allocated_bytes() <= before + len(data)


def test_a_part_of_a_table_is_sent_without_the_rest():
    table = pa.table({"a": np.arange(1 << 20), "b": pa.array(["text"] * (1 << 20)).dictionary_encode()})
    part = table.slice(1000, 3)

    encoded = encode("x", part)

    assert len(encoded.data) < 1000
    assert decode(encoded).equals(part)


def with_metadata(**changes: Any) -> bytes:
    return changed(NUMBERS, lambda header: header["pandas"].update(changes), "pandas")


COLUMN = {"name": "a", "field_name": "a", "pandas_type": "int64", "numpy_type": "int64", "metadata": None}
LABELS = {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "str", "metadata": None}


@pytest.mark.parametrize(
    "changes",
    [
        {"column_indexes": [LABELS, LABELS]},  # literals to evaluate
        {"columns": [COLUMN | {"name": [1]}]},
        {"columns": 1},
        {"index_columns": ["b"]},
        {"index_columns": ["a"] * 1000},
        {"index_columns": [{"kind": "range", "name": None, "start": 0, "stop": 2, "step": 1}] * 1000},
        {"index_columns": [{"kind": "range", "name": None, "start": "0", "stop": 2, "step": 1}]},
    ],
    ids=range(7),
)
def test_metadata_of_pandas_that_is_not_known_is_refused(changes: dict[str, Any]):
    with pytest.raises(VariableError, match="has no valid pandas metadata"):
        decode(EncodedVariable("x", "pandas", with_metadata(**changes)))


def test_an_unknown_dtype_in_the_metadata_of_pandas_has_no_effect():
    data = with_metadata(columns=[COLUMN | {"numpy_type": "interval[int64]"}], attributes={"a": 1})

    frame = decode(EncodedVariable("x", "pandas", data))

    assert (str(frame["a"].dtype), frame.attrs) == ("int64", {})
