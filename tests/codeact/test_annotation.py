import ast

import pytest

from ipybox.codeact.annotation import vague_type


@pytest.mark.parametrize(
    ("annotation", "vague"),
    [
        ("Any", "Any"),
        ("typing.Any", "Any"),
        ("dict", "dict"),
        ("list[object]", "object"),
        ("int | list", "list"),
        ("Callable[[Any], int]", "Any"),
        ("'list'", "list"),
        ("Annotated[Any, 'x']", "Any"),
        ("Annotated[int, Any]", None),
        ("Annotated[int]", None),
        ("Literal['object', 'list']", None),
        ("dict[str, int]", None),
        ("'no type'", None),
        ("made()[int]", None),
        ("None", None),
    ],
)
def test_types_that_say_nothing_are_found(annotation: str, vague: str | None):
    assert vague_type(ast.parse(annotation, mode="eval").body) == vague
