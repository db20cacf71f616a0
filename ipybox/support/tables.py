"""The wire format of tables between the application and a kernel: a JSON header, and the buffers of Arrow arrays.

Arrow's own format would be unsafe to read: a few bytes can expand to many columns, be compressed, or name a type whose
reader runs code. Here types come from a closed list, and each byte belongs to one buffer, so a table takes as much
memory as it has bytes.
"""

import importlib
import json
import re
from collections.abc import Iterator
from typing import Any

from ipybox.support.bounded_json import count_values
from ipybox.support.errors import VariableError
from ipybox.support.sizes import format_bytes

#: The libraries whose tables can be sent, which are also the names of their encodings.
KINDS = ("pandas", "polars", "pyarrow")

#: Maximum values of a table that become Python objects, such as strings, which take 50 to 100 bytes of memory each.
MAX_OBJECTS = 10_000_000

#: Maximum values in the header, about 14 for each column (whose array takes about 1 kB of memory), and the maximum
#: nesting of types.
MAX_HEADER_VALUES = 500_000
MAX_NESTING = 32

#: Bytes of the header's size at the start, and the alignment of each buffer.
_ALIGNED = 8

#: The types without parameters, as pyarrow prints and parses them. Views are missing, because their rows can share one
#: large value, and so are unions, run-ends and extension types.
_FLAT = re.compile(
    r"null|bool|u?int(8|16|32|64)|halffloat|float|double|(large_)?(string|binary)|month_day_nano_interval"
    r"|date32\[day\]|date64\[ms\]|time(32\[m?s\]|64\[[un]s\])|(timestamp|duration)\[[mun]?s\]"
)

#: The pandas dtypes that its metadata may name. Others are left to pyarrow, which derives them from Arrow's types.
_DTYPE = re.compile(
    r"u?int(8|16|32|64)|float(16|32|64)|bool|object|U?Int(8|16|32|64)|Float(32|64)|boolean|string|str"
    r"|[a-z0-9_]{1,16}\[pyarrow\]"
)


def encode_table(name: str, kind: str, value: Any) -> bytes:
    """Returns a table of the library `kind` as bytes; a VariableError says why it can't be sent, and what to do."""
    pa = _library(name, "pyarrow")
    try:
        if kind == "pandas":
            _check_labels(value)
            frame, value = value, pa.Table.from_pandas(value)
            _check_dicts(pa.types, frame, value)
        elif kind == "polars":
            value = value.to_arrow()
        return _packed(pa, value)
    except (pa.ArrowException, TypeError, ValueError, NotImplementedError) as exc:
        raise VariableError(f"{name} can't be sent as an Arrow table: it {_reason(pa, exc)}") from None


def decode_table(name: str, kind: str, data: bytes) -> Any:
    """Returns a table from the other side, which is not trusted.

    `ipybox.support.variables` has checked its size. pyarrow validates the whole table, including all offsets and
    strings. Its rows and Python objects are limited in number, because columns of nulls take no bytes. pandas'
    metadata, which `to_pandas` would evaluate as literals and parse as dtypes, is reduced to known values.

    Raises:
        VariableError: If a library is missing, or the table is not valid.
    """
    if kind not in KINDS:
        raise VariableError(f"{name} was sent in an unknown encoding")
    pa, library = _library(name, "pyarrow"), _library(name, kind)
    try:
        table, metadata = _unpacked(pa, data)
        _check_counts(pa.types, table, len(data))
        if kind == "pandas":
            return table.replace_schema_metadata({"pandas": _known_metadata(metadata, table.column_names)}).to_pandas()
        return library.from_arrow(table) if kind == "polars" else table
    except Exception as exc:  # of whatever pyarrow and the libraries do with the data
        raise VariableError(f"{name} is not a valid table: it {_reason(pa, exc)}") from None


def _library(name: str, library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as exc:
        raise VariableError(
            f"{name} is a table, which requires {library} in the application and in the kernel; importing it here "
            f"failed ({exc}): install it (in a kernel, with `%pip install {library}`)"
        ) from None


def _reason(pa: Any, exc: Exception) -> str:
    """Returns what is wrong with a table, worded to follow "it", as this module's own errors are."""
    own = type(exc) is ValueError and not isinstance(exc, pa.ArrowException) and str(exc).startswith(("is ", "has "))
    return str(exc) if own else f"is rejected by its library: {type(exc).__name__}: {str(exc)[:500]}"


def _check_labels(frame: Any) -> None:
    """Checks that pyarrow can restore the labels of a pandas DataFrame, which it sends as text."""
    labels = frame.columns
    if labels.nlevels > 1:
        raise ValueError("has multi-level column labels: join each into one string")
    if labels.dtype != "int64" and labels.inferred_type not in ("string", "empty"):
        raise ValueError("has column labels that are not all str: rename them, for example with df.columns.map(str)")
    for label in (labels.name, *frame.index.names):
        if label is not None and not isinstance(label, str):
            raise ValueError(f"has an index named {label!r}: use a str as its name")


def _check_dicts(types: Any, frame: Any, table: Any) -> None:
    """Checks that no column of Python objects contains dicts: as structs, each would get the keys of all others."""

    def has_struct(kind: Any) -> bool:
        return types.is_struct(kind) or any(has_struct(kind.field(index).type) for index in range(kind.num_fields))

    for label, dtype in frame.dtypes.items():
        if str(dtype) == "object" and has_struct(table.schema.field(str(label)).type):
            raise ValueError(f"has dicts in column {label!r}: send df.to_dict('records') instead")


def _packed(pa: Any, table: Any) -> bytes:
    columns = [[field.name, field.nullable, _spec(pa.types, field.type, field.name)] for field in table.schema]
    _schema(pa, columns)
    # Written as a stream, a slice of a larger table contains only the slice.
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    table = pa.ipc.open_stream(stream.getvalue()).read_all()
    arrays = [part for column in table.columns for part in _parts(pa.types, column.combine_chunks())]
    buffers = [array.buffers()[: array.type.num_buffers] for array in arrays]
    sizes = [
        [len(array), *(None if buffer is None else buffer.size for buffer in own)]
        for array, own in zip(arrays, buffers, strict=True)
    ]
    given: dict[bytes, bytes] = table.schema.metadata or {}
    metadata = json.loads(given.get(b"pandas", b"null"))
    header = json.dumps({"columns": columns, "sizes": sizes, "pandas": metadata}, separators=(",", ":")).encode()
    _check_header(header)
    pieces = [header, *(buffer for own in buffers for buffer in own if buffer is not None)]
    aligned = [part for piece in pieces for part in (piece, bytes(-len(piece) % _ALIGNED))]
    return b"".join([len(header).to_bytes(_ALIGNED, "little"), *aligned])


def _unpacked(pa: Any, data: bytes) -> tuple[Any, Any]:
    position, body = _ALIGNED, pa.py_buffer(data)

    def piece(size: Any) -> Any:
        nonlocal position
        if size is None:
            return None
        if type(size) is not int or not 0 <= size <= len(data) - position:
            raise ValueError("is incomplete")
        start = position
        position += size + -size % _ALIGNED
        return body.slice(start, size)

    header = piece(int.from_bytes(data[:_ALIGNED], "little")).to_pybytes()
    _check_header(header)
    described = json.loads(header)
    schema, sizes = _schema(pa, described["columns"]), iter(described["sizes"])

    def array(kind: Any) -> Any:
        if pa.types.is_dictionary(kind):
            return pa.DictionaryArray.from_arrays(array(kind.index_type), array(kind.value_type), ordered=kind.ordered)
        length, *own = next(sizes)
        buffers = [piece(size) for size in own]
        children = [array(kind.field(index).type) for index in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, length, buffers, children=children)

    table = pa.Table.from_arrays([array(field.type) for field in schema], schema=schema)
    table.validate(full=True)
    return table, described["pandas"]


def _check_header(header: bytes) -> None:
    if count_values(header, MAX_HEADER_VALUES) > MAX_HEADER_VALUES:
        raise ValueError("has too many columns: send a file instead")


def _parts(types: Any, array: Any) -> Iterator[Any]:
    """Yields an array and then its child arrays, each of which has its own buffers."""
    if types.is_dictionary(array.type):
        yield array.indices
        yield from _parts(types, array.dictionary)
        return
    yield array
    if types.is_struct(array.type):
        for index in range(array.type.num_fields):
            yield from _parts(types, array.field(index))
    elif array.type.num_fields:
        yield from _parts(types, array.values)


def _spec(types: Any, kind: Any, column: str) -> Any:
    if types.is_timestamp(kind) and kind.tz:
        return ["timestamp", kind.unit, kind.tz]
    if types.is_decimal(kind):
        return [str(kind).partition("(")[0], kind.precision, kind.scale]
    if types.is_dictionary(kind):
        return ["dictionary", str(kind.index_type), _spec(types, kind.value_type, column), kind.ordered]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        nest = "struct" if types.is_struct(kind) else "list_" if types.is_list(kind) else "large_list"
        return [nest, [[field.name, field.nullable, _spec(types, field.type, column)] for field in fields]]
    if not _FLAT.fullmatch(str(kind)):
        raise ValueError(f"has a column {column!r} of type {kind}, which can't be sent: convert it")
    return str(kind)


def _schema(pa: Any, columns: Any) -> Any:
    names = [name for name, _, _ in columns]
    if len(set(names)) < len(names):
        raise ValueError("has two columns with the same name")
    return pa.schema(_fields(pa, columns, 0))


def _fields(pa: Any, specs: Any, depth: int) -> list[Any]:
    if depth > MAX_NESTING:
        raise ValueError("has a type that is nested too deeply")
    return [pa.field(name, _type(pa, spec, depth), bool(nullable)) for name, nullable, spec in specs]


def _type(pa: Any, spec: Any, depth: int) -> Any:
    match spec:
        case str() if _FLAT.fullmatch(spec):
            return pa.type_for_alias(spec)
        case ["timestamp", unit, zone]:
            return pa.timestamp(unit, zone)
        case ["decimal32" | "decimal64" | "decimal128" | "decimal256" as decimal, precision, scale]:
            return getattr(pa, decimal)(precision, scale)
        case ["dictionary", indices, values, ordered] if depth == 0:
            return pa.dictionary(_type(pa, indices, MAX_NESTING), _type(pa, values, MAX_NESTING), bool(ordered))
        case ["struct", fields]:
            return pa.struct(_fields(pa, fields, depth + 1))
        case ["list_" | "large_list" as nest, fields]:
            return getattr(pa, nest)(*_fields(pa, fields, depth + 1))
        case _:
            raise ValueError("has a column of a type that can't be sent: convert it")


def _check_counts(types: Any, table: Any, size: int) -> None:
    if table.num_rows > 8 * size:
        raise ValueError(f"has {table.num_rows:,} rows in {format_bytes(size)}")
    count = sum(_count_objects(types, chunk) for column in table.columns for chunk in column.chunks)
    if count > MAX_OBJECTS:
        raise ValueError(f"has too many strings, lists and other objects: {count:,}; the limit is {MAX_OBJECTS:,}")


def _count_objects(types: Any, array: Any) -> int:
    """Returns the maximum number of Python objects that a validated array becomes."""
    kind = array.type
    if types.is_dictionary(kind):
        return len(array.dictionary)
    if kind.num_fields:
        parts = array.flatten() if types.is_struct(kind) else [array.flatten()]
        return len(array) + sum(len(part) + _count_objects(types, part) for part in parts)
    if types.is_boolean(kind):
        return len(array) if array.null_count else 0
    # These become numpy arrays.
    stored = types.is_integer(kind) or types.is_floating(kind) or types.is_timestamp(kind) or types.is_duration(kind)
    return 0 if stored else len(array)


def _known_metadata(metadata: Any, fields: list[str]) -> str:
    try:
        return json.dumps(_known(metadata, fields))
    except (ValueError, TypeError, KeyError):
        raise ValueError("has no valid pandas metadata") from None


def _known(metadata: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    """Returns a table's pandas metadata: names, dtypes and the index, each checked.

    https://pandas.pydata.org/docs/development/developer.html#storing-pandas-dataframe-objects-in-apache-parquet-format
    """
    (labels,) = metadata["column_indexes"]
    if labels["pandas_type"] == labels["numpy_type"] == "int64":
        dtypes = {"pandas_type": "int64", "numpy_type": "int64"}
    else:
        dtypes = {"pandas_type": "unicode", "numpy_type": "object"}
    columns = {
        column["field_name"]: {
            "name": _text(column["name"]),
            "field_name": _text(column["field_name"]),
            "pandas_type": "object",  # only "datetimetz" matters, and Arrow's type already says that
            "numpy_type": column["numpy_type"] if _DTYPE.fullmatch(column["numpy_type"]) else "object",
            "metadata": None,
        }
        for column in metadata["columns"]
    }
    match metadata["index_columns"]:
        case [{"kind": "range", "name": name, **steps}]:
            if steps.keys() != {"start", "stop", "step"} or not all(map(_is_number, steps.values())):
                raise ValueError("an index without numbers")
            index: list[Any] = [{"kind": "range", "name": _text(name), **steps}]
        case index:
            if not {*index} <= {*fields} or len({*index}) < len(index):
                raise ValueError("an index without a column of its own")
    labels = {"name": _text(labels["name"]), **dtypes}
    return {"column_indexes": [labels], "columns": [*columns.values()], "index_columns": index, "attributes": {}}


def _is_number(step: object) -> bool:
    return type(step) is int and abs(step) < 1 << 62


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("a name that is not text")
    return value
