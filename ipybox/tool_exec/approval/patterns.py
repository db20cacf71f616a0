"""Patterns for text that code has chosen: no text makes them slow.

Python's own `re` goes back in the text and tries again, for which a few characters can take it years. Here patterns
are applied by the engine that pydantic brings, Rust's `regex`, whose time grows with the length of the text only. It
has no look-around and no references back. https://docs.rs/regex/latest/regex/#syntax
"""

from pydantic_core import SchemaError, SchemaValidator, core_schema

#: Characters of a text beyond which it is not looked at.
MAX_TEXT = 20_000
#: Characters of a pattern.
MAX_PATTERN = 500


class Pattern:
    """A regular expression that is searched for.

    Args:
        expression: In the syntax of Rust's `regex`.

    Raises:
        ValueError: If it is none; the message says why.
    """

    def __init__(self, expression: str):
        try:
            self._validator = SchemaValidator(core_schema.str_schema(pattern=expression, strict=True))
        except SchemaError as exc:
            # After lines that show the expression, which the user sees anyway.
            raise ValueError(str(exc).strip().rpartition("\n")[2].removeprefix("error: ")) from None

    def found_in(self, text: str) -> bool:
        """Tells whether the text has it somewhere."""
        return self._validator.isinstance_python(text)


def is_text(value: str) -> bool:
    """Tells whether patterns can say anything about a text: it is not too long, and has no half characters."""
    if len(value) > MAX_TEXT:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def name_glob(glob: str) -> Pattern:
    """Returns the pattern of names as a whole: `*` stands for any characters, `?` for one."""
    wildcards = {"*": ".*", "?": "."}
    return Pattern(f"^(?s:{''.join(wildcards.get(each) or literal(each) for each in glob)})$")


def literal(text: str) -> str:
    """Returns an expression for this very text."""
    return "".join(each if each.isascii() and each.isalnum() else f"\\x{{{ord(each):X}}}" for each in text)
