"""Regular expressions that take linear time, because the agent's code chooses the text.

Python's `re` backtracks, and a few characters can keep it busy for years. pydantic includes Rust's `regex`, whose time
is linear in the length of the text; it supports neither look-around nor back-references.
https://docs.rs/regex/latest/regex/#syntax
"""

from pydantic_core import SchemaError, SchemaValidator, core_schema

#: Maximum characters of a text; longer ones are not searched.
MAX_TEXT = 20_000


class Pattern:
    """A regular expression to search for, in the syntax of Rust's `regex`.

    Raises:
        ValueError: If it is invalid; the message says why.
    """

    def __init__(self, expression: str):
        try:
            self._validator = SchemaValidator(core_schema.str_schema(pattern=expression, strict=True))
        except SchemaError as exc:
            # The first lines only repeat the expression.
            raise ValueError(str(exc).strip().rpartition("\n")[2].removeprefix("error: ")) from None

    def found_in(self, text: str) -> bool:
        """Returns whether the text contains a match."""
        return self._validator.isinstance_python(text)


def is_text(value: str) -> bool:
    """Returns whether patterns can search a text: it is not too long and contains no lone surrogates."""
    if len(value) > MAX_TEXT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def name_glob(glob: str) -> Pattern:
    """Returns a pattern for whole names: `*` matches any characters, `?` matches one."""
    wildcards = {"*": ".*", "?": "."}
    return Pattern(f"^(?s:{''.join(wildcards.get(each) or literal(each) for each in glob)})$")


def literal(text: str) -> str:
    """Returns an expression that matches exactly this text."""
    return "".join(each if each.isascii() and each.isalnum() else f"\\x{{{ord(each):X}}}" for each in text)
