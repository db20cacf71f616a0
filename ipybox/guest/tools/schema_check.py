"""Checks the arguments of a tool against its JSON Schema, for constraints beyond Python's types.

Imported only for tools that need it, because jsonschema takes a while to import. The application never imports it: a
server could make a check take hours; in the kernel, the cell's timeout ends it. Nothing is ever fetched: remote
references, and everything else that is undecidable here, are left to the server.
"""

import json
import re
import warnings
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema_specifications  # pyright: ignore[reportMissingTypeStubs] - it has neither stubs nor a marker
import referencing.exceptions
from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from ipybox.guest.import_placeholders import missing

# An optional format checker that is not needed here. Compiling its grammar takes more than a second.
_SLOW = "rfc3987_syntax"
_MAX_ERRORS = 10
_MAX_MESSAGE = 300

with missing(_SLOW):
    _jsonschema: Any = import_module("jsonschema")  # its types are partly unknown

#: Errors that prevent a decision: unknown patterns and types, references without target or end, and the library's
#: errors for hostile schemas.
_UNDECIDED = (
    re.error,
    referencing.exceptions.Unresolvable,
    _jsonschema.exceptions.UnknownType,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
#: The dialects that changed the form of keywords, newest first.
_DRAFTS = ("Draft202012", "Draft201909", "Draft4", "Draft3")


def dialect_of(schema: dict[str, Any]) -> str | None:
    """Returns the URI of a schema's dialect: the one that it names, or else the newest that fits.

    None means that it isn't well-formed in any dialect.
    """
    known = isinstance(schema.get("$schema"), str)
    named = _jsonschema.validators.validator_for(schema, default=None) if known else None
    validators = [getattr(_jsonschema, f"{draft}Validator") for draft in _DRAFTS]
    for validator in [named, *validators] if named else validators:
        try:
            validator.check_schema(schema, format_checker=None)  # it would accept only Python's patterns
        except (_jsonschema.SchemaError, *_UNDECIDED):
            continue
        return str(validator.ID_OF(validator.META_SCHEMA))
    return None


def check(params: BaseModel, arguments: dict[str, Any], schema_file: Path) -> None:
    """Checks the wire form of `params` against the schema in a file; without that file, only the server checks it.

    Raises:
        ValidationError: If they violate the schema; the places are named as in Python.
    """
    validator = _validator(type(params), schema_file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about patterns, which the user can't change
            found: list[Any] = list(islice(validator.iter_errors(arguments), _MAX_ERRORS)) if validator else []
        details = [_details(_jsonschema.exceptions.best_match([error]), params) for error in found]
    except _UNDECIDED:
        return
    if details:
        raise ValidationError.from_exception_data(type(params).__name__, details)


@cache
def _validator(_owner: type[BaseModel], schema_file: Path) -> Any:
    # Once for each class, because the file only changes with its module.
    try:
        schema = json.loads(schema_file.read_text(encoding="utf-8"))
        dialect = dialect_of(schema)
    except (OSError, ValueError, RecursionError):
        return None
    if dialect is None:
        return None
    kind = _jsonschema.validators.validator_for({"$schema": dialect})
    return _validator_class(kind)({**schema, "$schema": dialect}, registry=jsonschema_specifications.REGISTRY)


@cache
def _validator_class(kind: Any) -> Any:
    known = {name: kind.VALIDATORS.get(name) for name in ("type", "enum", "const")}
    keywords = {name: _unless_null(keyword) for name, keyword in known.items() if keyword}
    if "multipleOf" in kind.VALIDATORS:
        keywords["multipleOf"] = _multiple_of
    return _jsonschema.validators.extend(kind, keywords)


def _unless_null(keyword: Any) -> Any:
    """Returns a keyword that accepts null for OpenAPI's `nullable`, which many servers derive their schemas from."""

    def check(validator: Any, value: Any, instance: Any, schema: dict[str, Any]) -> Iterator[Any]:
        if not (instance is None and schema.get("nullable") is True):
            yield from keyword(validator, value, instance, schema) or ()

    return check


def _multiple_of(validator: Any, step: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    """Checks `multipleOf` for numbers as they are written: 0.3 is a multiple of 0.1, which their floats are not."""
    if validator.is_type(instance, "number") and Fraction(repr(instance)) % Fraction(repr(step)):
        yield _jsonschema.ValidationError(f"{instance!r} is not a multiple of {step!r}")


def _details(error: Any, params: BaseModel) -> InitErrorDetails:
    place: Any = params
    names: list[Any] = []
    for step in error.absolute_path:
        name: Any = _field_names(place).get(step, step)
        place = getattr(place, name, None) if isinstance(place, BaseModel) else _item(place, step)
        names.append(name)
    message = str(error.message)
    for wire_name, name in _field_names(place).items():
        if wire_name != name:
            message = message.replace(repr(wire_name), repr(name))
    if len(message) > _MAX_MESSAGE:
        message = f"{message[:_MAX_MESSAGE]}…"
    return InitErrorDetails(
        type=PydanticCustomError("json_schema", "{message}", {"message": message}),
        loc=tuple(names),
        input=error.instance,
    )


def _field_names(place: Any) -> dict[Any, str]:
    if not isinstance(place, BaseModel):
        return {}
    return {field.alias or name: name for name, field in type(place).model_fields.items()}


def _item(place: Any, step: str | int) -> Any:
    try:
        return place[step]
    except (LookupError, TypeError):
        return None
