"""Checks whether a result type tells callers what a result contains."""

import dataclasses
import datetime
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, is_typeddict
from uuid import UUID

from pydantic import BaseModel

#: Models and plain types.
_PROPER = (
    *(BaseModel, Enum, BaseException),
    *(str, int, float, bytes, NoneType, Decimal, UUID, PurePath, datetime.date, datetime.time, datetime.timedelta),
)
_CONTAINERS = (list, dict, tuple, set, frozenset, Sequence, Mapping)


def improper_types(result: Any) -> Iterator[str]:
    """Yields the types in a result type that are neither models nor plain types nor containers of these."""
    origin = get_origin(result)
    if origin is Literal:
        return
    if origin in (Union, UnionType, *_CONTAINERS):
        for item in get_args(result):
            if item is not Ellipsis:
                yield from improper_types(item)
    elif hasattr(result, "__value__"):  # an alias of Python 3.12
        yield from improper_types(result.__value__)
    elif result is not None and not _is_proper(result):
        yield getattr(result, "__qualname__", None) or str(result)


def _is_proper(result: Any) -> bool:
    if not isinstance(result, type) or result in _CONTAINERS:
        return False
    kind = cast("type[Any]", result)
    described = is_typeddict(kind) or dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    return described or issubclass(kind, _PROPER)
