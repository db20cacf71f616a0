"""Finds broken links of a built site, and files of other hosts that a browser would load."""

import posixpath
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser loads by itself, by element: the attribute with its address.
_LOADED = {"script": "src", "img": "src", "iframe": "src"}

#: Values of `rel` by which a browser loads the target of a `link` element.
_LOADED_RELATIONS = {"stylesheet", "icon", "preload", "preconnect", "manifest"}


class _Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if (name := _LOADED.get(tag)) and name in values:
            self.loaded.add(values[name])
        if tag == "link" and _LOADED_RELATIONS & {*values.get("rel", "").split()}:
            self.loaded.add(values.get("href", ""))


def broken_links(site: Path) -> list[str]:
    """Returns a line for each link whose file or anchor is not in the site, and for each file of another host."""
    pages = {
        path.relative_to(site).as_posix(): _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }
    found: list[str] = []
    for name, page in sorted(pages.items()):
        if name == "404.html":  # its links begin at the root of the published site
            continue
        found += [f"{name}: loads {link} of another host" for link in sorted(page.loaded) if urlsplit(link).netloc]
        for link in sorted(page.links | page.loaded):
            if problem := _problem(site, pages, name, link):
                found.append(f"{name}: {link}: {problem}")
    return found


def _problem(site: Path, pages: dict[str, _Page], name: str, link: str) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(parts.path))) if parts.path else name
    path = f"{path}/index.html" if (site / path).is_dir() else path
    if not (site / path).is_file():
        return "file not found"
    anchor = unquote(parts.fragment)
    if anchor and path in pages and anchor not in pages[path].anchors and not anchor.startswith("__"):
        return "anchor not found"
    return None
