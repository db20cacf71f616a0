"""The pages of the docs site: their places in the navigation, and their Markdown with links that work on the site."""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
CONFIG = ROOT / "mkdocs.yml"


#: A link or an image of Markdown, outside of code: its text, its target, and its anchor.
LINK = re.compile(r"(!?\[[^\]]*\])\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")

_FENCE = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        path: Its path below the directory of all pages, such as `architecture.md`.
        title: Its title in the navigation.
        section: The first section of the navigation that it is in; its own title if it is in none.
    """

    path: str
    title: str
    section: str


def load_config() -> dict[str, Any]:
    """Returns the configuration."""
    return cast("dict[str, Any]", yaml.safe_load(CONFIG.read_text(encoding="utf-8")))


def pages_of(nav: list[Any], section: str = "") -> Iterator[Page]:
    """Yields the pages of a navigation in its order."""
    for entry in nav:
        ((title, content),) = cast("dict[str, Any]", entry).items()
        if isinstance(content, str):
            yield Page(content, title, section or title)
        else:
            yield from pages_of(content, section or title)


def with_site_links(text: str, path: str, staged: set[str], repository: str) -> str:
    """Returns the Markdown of a page in which links to files that are not part of the site lead to the repository.

    Args:
        text: The Markdown.
        path: The path of its file below `docs/`.
        staged: The paths of the site's files.
        repository: The address of the repository.
    """

    def target(match: re.Match[str]) -> str:
        label, link, anchor = match[1], match[2], match[3] or ""
        here = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
        for candidate in (here, f"{here}/index.md", f"{here}/README.md"):
            if candidate in staged:
                return f"{label}({posixpath.relpath(candidate, posixpath.dirname(path) or '.')}{anchor})"
        in_repository = posixpath.normpath(posixpath.join("docs", here))
        kind = "tree" if (ROOT / in_repository).is_dir() else "blob"
        return f"{label}({repository}/{kind}/main/{in_repository}{anchor})"

    done, result = 0, ""
    for fence in _FENCE.finditer(text):
        result += LINK.sub(target, text[done : fence.start()]) + fence[0]
        done = fence.end()
    return result + LINK.sub(target, text[done:])
