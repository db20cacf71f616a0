import pytest

from ipybox.support.sizes import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1073741824", 1 << 30),
        ("4G", 4 << 30),
        ("4g", 4 << 30),
        ("512MiB", 512 << 20),
        ("512Mi", 512 << 20),
        (" 1.5 GiB ", 3 << 29),
        ("2T", 2 << 40),
        ("64k", 64 << 10),
        ("4GB", 4_000_000_000),
        ("100 b", 100),
    ],
)
def test_amounts_of_memory_are_understood(text: str, expected: int):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "G", "4X", "-1G", "1e9", "4 G B", "four", "1,5G", "٤G", "inf"])
def test_other_texts_are_refused_with_examples(text: str):
    with pytest.raises(ValueError, match="is not an amount of memory: use a value such as 4G, 512MiB or 1073741824"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (4 << 30, "4 GiB"), (int(4.1 * (1 << 40)), "4.1 TiB")],
)
def test_amounts_of_memory_are_readable(count: int, expected: str):
    assert format_bytes(count) == expected
