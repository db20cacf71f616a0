"""What a model gets of a cell: text and images. The examples of agents share it."""

from typing import NamedTuple

from ipybox import CodeExecutionError, CodeExecutor

#: What a model needs to know about the tool.
DESCRIPTION = "Executes Python code in an IPython cell. Variables persist between cells. Errors come back as text."


class Image(NamedTuple):
    """An image that a cell displayed."""

    data: bytes
    media_type: str


async def run_cell(executor: CodeExecutor, code: str) -> tuple[str, list[Image]]:
    """Returns the output of a cell with its error, if there is one, so that the model can correct its code."""
    error = None
    try:
        output = await executor.execute(code)
    except (CodeExecutionError, TimeoutError) as failure:
        error, output = str(failure), getattr(failure, "output", None)
    if output is None:  # the cell did not start
        return error or "", []
    text = "\n".join(part for part in (output.text, error, *output.notices) if part)
    images = [
        Image(data, "image/png" if path.suffix == ".png" else "image/jpeg")
        for path, data in zip(output.images, output.image_data, strict=True)
        if data is not None
    ]
    return text or "(no output)", images
