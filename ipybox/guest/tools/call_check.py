"""Checks the keyword arguments of a call of a tool's `Params` without making it, with the class itself."""

from collections.abc import Collection
from types import FunctionType
from typing import Any

from pydantic import ValidationError

from ipybox.guest.cell_check import suggestion
from ipybox.guest.tools.arguments import as_json
from ipybox.guest.tools.models import CheckedInput, Input

#: Maximum characters of a reason.
MAX_REASON = 200

_CODE = (FunctionType, classmethod, staticmethod)


def wrong_arguments(model: type[Input], values: dict[str, Any], given: Collection[str]) -> list[str]:
    """Returns which of the `given` arguments don't exist, are missing, or are rejected, by the `values` that are known.

    Each text is meant to follow the model's name. Only models that are as they were generated are checked.
    """
    if model.__bases__ not in ((Input,), (CheckedInput,)) or any(
        isinstance(each, _CODE) for each in vars(model).values()
    ):
        return []
    others = {key: object() for key in given if key not in values}
    fields = model.model_fields
    try:
        if others:  # only fields of any type accept an object, and no schema is checked with it
            model.__pydantic_validator__.validate_python({**as_json(values), **others})
        else:
            model(**values)
    except ValidationError as error:
        problems: list[Any] = error.errors(include_url=False, include_context=False, include_input=False)
    else:
        problems = []
    if not problems and all(key in fields for key in given):
        return []
    names = {field.alias: key for key, field in fields.items() if field.alias} | dict(zip(fields, fields, strict=True))
    used = {names.get(key, key) for key in given}
    unused = [key for key in fields if key not in used]
    # An open schema accepts anything, but a name that is a parameter in another style is a mistake.
    styles = {_plain(key): key for key in unused if model.model_config.get("extra") == "allow"}
    meant = {key: styles.get(_plain(key)) for key in given if key not in names}
    lines = [f" has no {key}: did you mean {field}?" for key, field in meant.items() if field]
    return lines + _texts(problems, {names.get(key, key) for key in others}, unused)


def _texts(problems: list[Any], others: Collection[str], unused: list[str]) -> list[str]:
    lines: list[str] = []
    missing: list[str] = []
    reasons: dict[str, list[str]] = {}
    for each in problems:
        field, *place = map(str, each["loc"] or [""])
        if others and field in ("", *others):  # the check was without the schema, or of the object
            continue
        if not place and each["type"] == "missing":
            missing.append(field)
        elif not place and each["type"] == "extra_forbidden":
            lines.append(f" has no {field}{suggestion(field, unused)}")
        else:
            reasons.setdefault(field, []).append(": ".join(filter(None, (".".join(place), each["msg"]))))
    for field, texts in reasons.items():
        reason = " ".join("; ".join(texts).split())
        lines.append(f"({field and f'{field}=…'}): {reason[:MAX_REASON]}")
    return lines + ([f" needs {', '.join(missing)}"] if missing else [])


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
