"""Imports generated modules and tries them: one JSON object on standard input, one as the last line of the output.

    → {"root": directory of `mcptools`, "package": name,
       "modules": {name: {"values": [arguments, ...], "named": [property, ...], "cases": [arguments, ...]}}}
    ← {"seconds": of the imports, "modules": {name: {"import_error": text or null,
       "losses": what was not sent as it was given, "verdicts": ["accepted", "refused" or "crash: ...", ...]}}}

Runs with the interpreter of either side, so that it needs nothing but pydantic and what the modules import.
"""

import importlib
import json
import sys
import time
from contextlib import suppress
from types import ModuleType
from typing import Any

from pydantic import ValidationError


def main() -> None:
    """Answers the request."""
    request = json.load(sys.stdin)
    sys.path.insert(0, request["root"])
    package = f"mcptools.{request['package']}"
    errors: dict[str, str] = {}
    modules: dict[str, ModuleType] = {}
    importlib.import_module(package)  # what all modules share is not part of the time
    began = time.perf_counter()
    for name in request["modules"]:
        try:
            modules[name] = importlib.import_module(f"{package}.{name}")
        except Exception as exc:
            errors[name] = _describe(exc)
    seconds = time.perf_counter() - began
    tried = {name: _try(modules.get(name), work, errors.get(name)) for name, work in request["modules"].items()}
    print()
    print(json.dumps({"seconds": seconds, "modules": tried}))


def _try(module: ModuleType | None, work: dict[str, Any], error: str | None) -> dict[str, Any]:
    if module is None:
        return {"import_error": error, "losses": [], "verdicts": ["crash: not imported"] * len(work["cases"])}
    losses = [loss for given in work["values"] for loss in _losses(module, given, work["named"])]
    verdicts = [_verdict(module, arguments) for arguments in work["cases"]]
    return {"import_error": None, "losses": list(dict.fromkeys(losses)), "verdicts": verdicts}


def _verdict(module: ModuleType, arguments: dict[str, Any]) -> str:
    try:
        module.Params(**arguments)
    except ValidationError:
        return "refused"
    except Exception as exc:
        return f"crash: {_describe(exc)}"
    return "accepted"


def _losses(module: ModuleType, given: dict[str, Any], named: list[str]) -> list[str]:
    try:
        params = module.Params(**given)
    except Exception as exc:
        return [f"refused: {_describe(exc)}"]
    try:
        sent = _sent(params)
        return [
            # Names that the schema allows and does not mention are another matter than those it mentions.
            *(f"{'lost' if name in named else 'lost extra'}: {name}" for name in given.keys() - sent.keys()),
            *(f"added: {name}" for name in sent.keys() - given.keys()),
            *(f"changed: {name}" for name in given.keys() & sent.keys() if _text(given[name]) != _text(sent[name])),
        ]
    except Exception as exc:
        return [f"crash: {_describe(exc)}"]


def _sent(params: Any) -> dict[str, Any]:
    for name in ("ipybox.guest.tools.models", "ipybox.tool_exec.models"):  # where peers have it, if they do
        with suppress(ImportError):
            wire: Any = getattr(importlib.import_module(name), "wire", None)
            if wire is not None:
                break
    else:
        return params.model_dump(mode="json", exclude_none=True)
    return wire(params)


def _text(value: Any) -> str:
    """A text by which values can be compared: in Python 1, 1.0 and True are equal."""
    return json.dumps(value, sort_keys=True)


def _describe(exc: Exception) -> str:
    return f"{type(exc).__name__}: {' '.join(str(exc).split())[:200]}"


if __name__ == "__main__":
    main()
