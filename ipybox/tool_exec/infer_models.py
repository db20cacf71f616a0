"""Infers models from samples, in a separate process: python -I -B infer_models.py <samples >models

The samples are JSON from a kernel: they could make the generator use any amount of time and memory, or trigger a bug.
It receives only their schema. With exit status 0, stdout is the source of the models; with 1, stderr is the reason.

Uses only the standard library and the extra `parsers`: with `-I`, it can't import ipybox. `model_inference` starts it.
"""

import json
import resource
import sys
import warnings
from typing import Any

MEMORY = 1 << 30
CPU_SECONDS = 20

#: The name of the model for a whole sample.
CLASS = "ParseResult"


def main() -> None:
    """Prints the models to stdout."""
    limit()
    try:
        samples = json.load(sys.stdin)
    except (ValueError, RecursionError):
        sys.exit("the samples are not valid JSON, or nested too deeply")
    try:
        from datamodel_code_generator import InputFileType, PythonVersion, generate
        from datamodel_code_generator.enums import DataModelType
        from genson import SchemaBuilder  # pyright: ignore[reportMissingTypeStubs] it has no stubs
    except ImportError:
        sys.exit("the packages for inferring models are not installed: install ipybox with the extra `parsers`")
    builder: Any = SchemaBuilder()
    try:
        for sample in samples:
            builder.add_object(sample)
    except RecursionError:
        sys.exit("the samples are nested too deeply")
    warnings.simplefilter("ignore")
    models = generate(
        json.dumps(builder.to_schema()),
        input_file_type=InputFileType.JsonSchema,
        output_model_type=DataModelType.PydanticV2BaseModel,
        target_python_version=PythonVersion.PY_311,
        class_name=CLASS,
        use_standard_collections=True,
        use_union_operator=True,
        disable_timestamp=True,
        disable_future_imports=True,
        custom_file_header=" ",
        formatters=[],
    )
    sys.stdout.write(str(models))


# A copy of the function in `mcp_server/results/image_worker.py`, with other limits: with `-I`, neither script can
# import the other.
def limit() -> None:
    """Limits this process's resources and keeps it from writing files."""
    # Not RLIMIT_AS: it also counts reserved memory, and macOS does not accept it.
    for kind, value in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


if __name__ == "__main__":
    main()
