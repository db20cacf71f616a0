import pytest

from ipybox.code_exec.model_output import drawn, failure_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a\nb"),
        (" 10 %\r 50 %\r100 %\ndone", "100 %\ndone"),
        ("longer\rshort", "shortr"),
        ("\r", ""),
        ("kept\r", "kept"),
        ("a\r\rb\n\rc", "b\nc"),
        ("abc\rde\rf", "fec"),
        ("50 %\b\b\b\b100 %", "100 %"),
        ("|\b/\b-\b\\\bdone", "done"),
        ("abc\b\bX", "aXc"),
        ("\b\b\ba\b", "a"),
        ("abc\rx\b\by\nz\b", "ybc\nz"),
        ("x" * 2_000_000 + "\b\ry\r", "y"),
    ],
)
def test_later_parts_of_a_line_cover_earlier_ones(text: str, shown: str):
    assert drawn(text) == shown


@pytest.mark.slow
def test_millions_of_returns_take_no_time_worth_speaking_of():
    assert drawn("x" * 1_000_000 + "\ry" * 1_000_000) == "y"
    assert drawn("\n".join(["a\b" * 500_000] * 10)) == "\n".join(["a"] * 10)


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (OSError(2, "No such file", "/x\x1b"), "can't access /x\\u001b: No such file"),
        (OSError("full"), "full"),
        (ValueError(), "ValueError"),
    ],
)
def test_a_failure_is_told_in_one_line_or_by_its_type(failure: Exception, text: str):
    assert failure_text(failure) == text
