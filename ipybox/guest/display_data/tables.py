"""DataFrames and Series of pandas as tables: records with a schema.

The form is a Frictionless tabular data resource, which pandas can make, too, but without limits, and not of each frame.
https://specs.frictionlessdata.io/tabular-data-resource/
"""

from typing import Any, cast

from ipybox.guest.display_data.values import BoundedValues, JSONScalar

MAX_ROWS = 1000
MAX_COLUMNS = 100

#: Types of fields by the kinds of numpy, which the types of pandas' extensions have, too.
_TYPES = {"b": "boolean", "i": "integer", "u": "integer", "f": "number", "M": "datetime", "m": "duration"}


def table_of(frame: Any) -> dict[str, Any]:
    """Returns a DataFrame as a table.

    The index is part of it, as the primary key, unless it only numbers the rows.
    """
    values = BoundedValues()
    rows, columns = frame.shape
    width = values.reserve(columns, 0, MAX_COLUMNS)
    levels = 0 if _only_numbers(frame.index) else frame.index.nlevels
    shown = frame.iloc[: values.reserve(rows, width + levels, MAX_ROWS), :width]
    index = [shown.index.get_level_values(level) for level in range(levels)]
    contents = [*index, *(shown.iloc[:, column] for column in range(width))]
    names = _distinct([*_index_names(shown.index.names[:levels]), *shown.columns], values)
    cells = [[None if missing else values.scalar(value) for value, missing in _pairs(each)] for each in contents]
    fields = [
        {"name": name, "type": _type(each.dtype, column)}
        for name, each, column in zip(names, contents, cells, strict=True)
    ]
    return {
        "profile": "tabular-data-resource",
        "schema": {"fields": fields, **({"primaryKey": names[:levels]} if levels else {})},
        "data": [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)],
        "total_rows": rows,
        "total_columns": columns,
        "truncated": values.truncated,
    }


def table_of_series(series: Any) -> dict[str, Any]:
    """Returns a Series as a table; the column of one without a name is called `values`."""
    return table_of(series.to_frame("values" if series.name is None else series.name))


def _only_numbers(index: Any) -> bool:
    """Returns whether an index is the default one."""
    return type(index).__name__ == "RangeIndex" and (index.start, index.step, index.name) == (0, 1, None)


def _index_names(names: list[object]) -> list[object]:
    if len(names) == 1:
        return ["index" if names[0] is None else names[0]]
    return [f"level_{level}" if name is None else name for level, name in enumerate(names)]


def _distinct(labels: list[object], values: BoundedValues) -> list[str]:
    """Returns a name for each label; several columns can have the same one."""
    names: list[str] = []
    used: dict[str, int] = {}
    for label in labels:
        levels = cast(tuple[object, ...], label) if isinstance(label, tuple) else (label,)
        stem = name = values.text(".".join(map(str, levels)))
        while name in used:
            used[stem] += 1
            name = f"{stem}.{used[stem]}"
        used[name] = 0
        names.append(name)
    return names


def _pairs(column: Any) -> Any:
    """Returns the values of a column, each with whether it is missing."""
    return zip(column.tolist(), column.isna().tolist(), strict=True)


def _type(dtype: Any, cells: list[JSONScalar]) -> str:
    kind = _TYPES.get(getattr(dtype, "kind", "O"))
    return kind or ("string" if all(cell is None or isinstance(cell, str) for cell in cells) else "any")
