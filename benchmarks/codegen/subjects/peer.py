"""Generates modules as ipybox 0.9 did: one JSON object on standard input, one as the last line of the output.

    → {"root": directory of `mcptools`, "package": name,
       "tools": [{"module": ..., "name": ..., "description": ..., "input": schema, "output": schema or null}, ...]}
    ← {"seconds": ..., "errors": {module: text}}

The settings were found by comparison: with them the modules for the tools of GitHub's server are, byte for byte, those
that ipybox 0.9.2 writes. Where the peer's behavior is unknown, it gets the benefit: docstrings are escaped, and the
package's `__init__.py` is nearly empty.
"""

import importlib
import json
import re
import sys
import textwrap
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")
codegen: Any = importlib.import_module("datamodel_code_generator")

SETTINGS: dict[str, Any] = {
    "input_file_type": codegen.InputFileType.JsonSchema,
    "output_model_type": codegen.DataModelType.PydanticV2BaseModel,
    "use_field_description": True,
    "use_double_quotes": True,
    "use_union_operator": False,
    "use_standard_collections": False,
}

RUN = '''
from . import CLIENT

def run(params: Params) -> {result}:
    """{description}
    """
'''
RUN_TEXT = "    return CLIENT.run_sync(tool_name={name}, tool_args=params.model_dump(exclude_none=True))\n"
RUN_PARSED = """\
    result = CLIENT.run_sync(tool_name={name}, tool_args=params.model_dump(exclude_none=True))
    return Result.model_validate(result)
"""


def main() -> None:
    """Answers the request."""
    request = json.load(sys.stdin)
    directory = Path(request["root"], "mcptools", request["package"])
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "__init__.py").write_text("CLIENT = None\n")
    models({"type": "object"}, "Params")  # loads the formatters
    errors: dict[str, str] = {}
    began = time.perf_counter()
    for tool in request["tools"]:
        try:
            (directory / f"{tool['module']}.py").write_text(source(tool), encoding="utf-8")
        except Exception as exc:
            errors[tool["module"]] = f"{type(exc).__name__}: {' '.join(str(exc).split())[:200]}"
    seconds = time.perf_counter() - began
    print()
    print(json.dumps({"seconds": seconds, "errors": errors}))


def source(tool: dict[str, Any]) -> str:
    """The module of a tool."""
    parts = [models(tool["input"], "Params")]
    if tool["output"] is not None:
        parts.append(models(tool["output"], "Result"))
    text = (tool["description"] or "").replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    description = textwrap.indent(text, "    ").lstrip()
    run = RUN.format(result="str" if tool["output"] is None else "Result", description=description)
    call = (RUN_TEXT if tool["output"] is None else RUN_PARSED).format(name=json.dumps(tool["name"]))
    # The second schema's `from __future__` is removed: it is allowed at the beginning only.
    parts[1:] = [re.sub(r"^from __future__ import annotations\n", "", part, flags=re.MULTILINE) for part in parts[1:]]
    return "\n\n".join([*parts, run + call])


def models(schema: Any, name: str) -> str:
    """The classes of a schema, without the comments above them."""
    template = defaultdict[str, dict[str, Any]](dict, {"#all#": {"config": {"use_enum_values": True}}})
    text = codegen.generate(json.dumps(schema), class_name=name, extra_template_data=template, **SETTINGS)
    return re.sub(r"\A(#.*\n)+\n?", "", text)


if __name__ == "__main__":
    main()
