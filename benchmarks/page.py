"""Generated parts of `docs/benchmarks.md`, each between two comments."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"

NAME = "benchmarks.md"


def replace_part(docs: Path, part: str, text: str) -> None:
    """Write the page with a new text between `<!-- begin PART -->` and `<!-- end PART -->`.

    Args:
        docs: The directory of the page. If it has none, the text around the part comes from the page in `docs/`.
        part: The name of the part.
        text: Its Markdown.

    Raises:
        OSError: If the page can't be written.
    """
    page = docs / NAME
    begin, end = f"<!-- begin {part} -->\n", f"<!-- end {part} -->\n"
    before, _, rest = (page if page.exists() else DOCS / NAME).read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    page.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}", encoding="utf-8")
