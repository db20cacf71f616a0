"""Tables as the application and a kernel send them to each other: as streams of Arrow's IPC format.

pyarrow, pandas and polars are imported only here, for the first table.
"""

import importlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ipybox.support.arrow_stream import check_stream
from ipybox.support.bounded_json import exceeds_value_limit
from ipybox.support.errors import VariableError
from ipybox.support.sizes import format_bytes

#: The libraries whose tables can be sent, which are also the names of their encodings.
KINDS = ("pandas", "polars", "pyarrow")

#: Maximum values of a table that become an object of Python each, such as texts, which take 50 to 100 bytes of memory.
MAX_OBJECTS = 10_000_000

#: The dtypes of pandas that its metadata may name. Others are left to pyarrow, which derives them from Arrow's types.
_DTYPE = re.compile(
    r"u?int(8|16|32|64)|float(16|32|64)|bool|object|U?Int(8|16|32|64)|Float(32|64)|boolean|string|str"
    r"|[a-z0-9_]{1,16}\[pyarrow\]"
)


def encode_table(name: str, kind: str, value: Any) -> bytes:
    """Returns a table as an Arrow IPC stream.

    Args:
        name: The name of the variable.
        kind: The library of the table, one of `KINDS`.
        value: The table.

    Raises:
        VariableError: If pyarrow is missing, or the table can't be sent; the message says what to do.
    """
    pa = _library(name, "pyarrow")
    try:
        if kind == "pandas":
            _check_labels(value)
            frame, value = value, pa.Table.from_pandas(value)
            _check_dicts(pa.types, frame, value)
        elif kind == "polars":
            value = value.to_arrow()
        _check_columns(pa, value, kind)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_table(value)
        data = sink.getvalue().to_pybytes()
        check_stream(data)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as exc:
        raise VariableError(f"{name} can't be sent as an Arrow table: it {_reason(pa, exc)}") from None
    return data


def decode_table(name: str, kind: str, data: bytes, *, any_table: bool) -> Any:
    """Returns the table in an Arrow IPC stream of the other side, which is not trusted.

    Checked before pyarrow reads it: its size (`ipybox.support.variables`), and that it is not compressed and has no
    extension types, so neither pyarrow nor a library that registered a type runs code for one. Then pyarrow validates
    the whole table, with all offsets and texts. Then its types: no views, whose rows can share one large value, and no
    unions or run-ends. The number of its rows and of its Python objects is limited, because columns of nulls take no
    bytes. pandas' metadata, which `to_pandas` would evaluate as literals and parse as dtypes, is replaced by what is
    known of it.

    Args:
        name: The name of the variable.
        kind: The library of the table, one of `KINDS`.
        data: The stream.
        any_table: Whether it becomes a pyarrow.Table if its library is missing here.

    Raises:
        VariableError: If a library is missing, or the table is not valid.
    """
    if kind not in KINDS:
        raise VariableError(f"{name} was sent in an unknown encoding")
    pa = _library(name, "pyarrow")
    try:
        check_stream(data)
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)
        _check_columns(pa, table, kind)
        _check_counts(pa, table, len(data))
        table = _with_known_metadata(table, required=kind == "pandas")
        if kind == "pandas":
            return _with_library(name, kind, table, any_table, _to_pandas)
        if kind == "polars":
            # polars parses the metadata of its columns.
            plain = pa.table(table.columns, schema=pa.schema([field.remove_metadata() for field in table.schema]))
            return _with_library(name, kind, plain, any_table, _to_polars)
    except VariableError:
        raise
    except Exception as exc:  # of whatever pyarrow and the libraries do with the data
        raise VariableError(f"{name} is not a valid table: it {_reason(pa, exc)}") from None
    return table


def _with_library(name: str, kind: str, table: Any, any_table: bool, convert: Any) -> Any:
    try:
        library = _library(name, kind)
    except VariableError:
        if any_table:
            return table
        raise
    return convert(library, table)


def _to_pandas(_: Any, table: Any) -> Any:
    return table.to_pandas()


def _to_polars(polars: Any, table: Any) -> Any:
    return polars.from_arrow(table)


def _library(name: str, library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as exc:
        raise VariableError(
            f"{name} is a table, which requires {library} in the application and in the kernel; importing it here "
            f"failed ({exc}): install it (in a kernel, with `%pip install {library}`)"
        ) from None


def _reason(pa: Any, exc: Exception) -> str:
    """Returns what is wrong with a table; the errors of this package continue "it …" by themselves."""
    own = type(exc) is ValueError and not isinstance(exc, pa.ArrowException) and str(exc).startswith(("is ", "has "))
    return str(exc) if own else f"is rejected by its library: {type(exc).__name__}: {str(exc)[:500]}"


def _check_labels(frame: Any) -> None:
    """Checks that pyarrow can restore the labels of a DataFrame of pandas, which it sends as text."""
    labels = frame.columns
    if labels.nlevels > 1:
        raise ValueError("has multi-level column labels: join each into one string")
    if labels.dtype != "int64" and labels.inferred_type not in ("string", "empty"):
        raise ValueError("has column labels that are not all str: rename the columns, such as with df.columns.map(str)")
    for label in (labels.name, *frame.index.names):
        if label is not None and not isinstance(label, str):
            raise ValueError(f"has an index named {label!r}: use a str as its name")


def _check_dicts(types: Any, frame: Any, table: Any) -> None:
    """Checks that no column of Python objects has dicts: as structs, each would get the keys of all others."""

    def has_struct(kind: Any) -> bool:
        return types.is_struct(kind) or any(has_struct(kind.field(index).type) for index in range(kind.num_fields))

    for label, dtype in frame.dtypes.items():
        if str(dtype) == "object" and has_struct(table.schema.field(str(label)).type):
            raise ValueError(f"has dicts in column {label!r}: send df.to_dict('records') instead")


def _check_columns(pa: Any, table: Any, kind: str) -> None:
    names: list[str] = table.column_names
    if len(set(names)) < len(names):
        raise ValueError("has two columns with the same name")
    for field in table.schema:
        _check_type(pa.types, field.type, field.name, nested_metadata=kind != "polars")


def _check_type(types: Any, kind: Any, column: str, *, nested_metadata: bool) -> None:
    """Checks that a column has no type by which little data can stand for much."""
    if types.is_dictionary(kind):
        kind = kind.value_type
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_struct(kind):
        for index in range(kind.num_fields):
            field = kind.field(index)
            if field.metadata and not nested_metadata:
                raise ValueError(f"has a column {column!r} with a nested polars type: {field.type}")
            _check_type(types, field.type, column, nested_metadata=nested_metadata)
        return
    flat = (types.is_primitive, types.is_decimal, types.is_string, types.is_large_string, types.is_binary)
    if not any(is_type(kind) for is_type in (*flat, types.is_large_binary, types.is_null)):
        raise ValueError(f"has a column {column!r} of type {kind}, which can't be sent: convert it")


def _check_counts(pa: Any, table: Any, size: int) -> None:
    if table.num_rows > 8 * size:
        raise ValueError(f"has {table.num_rows:,} rows in {format_bytes(size)}")
    chunks = [chunk for column in table.columns for chunk in column.chunks]
    if (count := sum(_count_objects(pa.types, chunk) for chunk in chunks)) > MAX_OBJECTS:
        raise ValueError(f"has too many strings, lists and other objects: {count:,}; the limit is {MAX_OBJECTS:,}")


def _count_objects(types: Any, array: Any) -> int:
    """Returns how many objects of Python a validated array becomes at most."""
    if types.is_dictionary(array.type):
        return len(array.dictionary)
    if types.is_list(array.type) or types.is_large_list(array.type):
        return len(array) + len(array.flatten()) + _count_objects(types, array.flatten())
    if types.is_struct(array.type):
        return len(array) + sum(len(field) + _count_objects(types, field) for field in array.flatten())
    return 0 if types.is_primitive(array.type) else len(array)


def _with_known_metadata(table: Any, *, required: bool) -> Any:
    """Returns the table with the metadata of pandas reduced to what is known.

    Raises:
        ValueError: If it is not valid, and required; otherwise the table loses it.
    """
    metadata: dict[bytes, bytes] = dict(table.schema.metadata or {})
    raw = metadata.pop(b"pandas", b"{}")
    try:
        metadata[b"pandas"] = json.dumps(_known({} if exceeds_value_limit(raw) else json.loads(raw), table)).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        if required:
            raise ValueError("has no valid pandas metadata") from None
    return table.replace_schema_metadata(metadata)


def _known(metadata: dict[str, Any], table: Any) -> dict[str, Any]:
    """Returns pandas' metadata of a table: names, dtypes and the index, each checked.

    https://pandas.pydata.org/docs/development/developer.html#storing-pandas-dataframe-objects-in-apache-parquet-format

    Raises:
        ValueError, TypeError, KeyError: If it is not valid.
    """
    (labels,) = metadata["column_indexes"]
    numbers = labels["pandas_type"] == labels["numpy_type"] == "int64"
    dtype = "int64" if numbers else "unicode"
    known = {"name": _text(labels["name"]), "pandas_type": dtype, "numpy_type": dtype if numbers else "object"}
    fields: set[str] = set(table.column_names)
    columns = [_known_column(column) for column in metadata["columns"] if column["field_name"] in fields]
    index = [_known_index(descriptor, fields) for descriptor in metadata["index_columns"]]
    return {"column_indexes": [known], "columns": columns, "index_columns": index, "attributes": {}}


def _known_column(column: Mapping[str, Any]) -> dict[str, Any]:
    dtype = column["numpy_type"]
    known = isinstance(dtype, str) and _DTYPE.fullmatch(dtype) is not None
    return {
        "name": _text(column["name"]),
        "field_name": _text(column["field_name"]),
        "pandas_type": "object",  # is only asked whether it is "datetimetz", which Arrow's type says, too
        "numpy_type": dtype if known else "object",
        "metadata": None,
    }


def _known_index(descriptor: Any, fields: Iterable[str]) -> Any:
    if isinstance(descriptor, str):
        if descriptor not in fields:
            raise ValueError("an index without a column")
        return descriptor
    steps = {key: descriptor[key] for key in ("start", "stop", "step")}
    if not all(type(step) is int and abs(step) < 1 << 62 for step in steps.values()):
        raise ValueError("an index without numbers")
    return {"kind": "range", "name": _text(descriptor["name"]), **steps}


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("a name that is not text")
    return value
