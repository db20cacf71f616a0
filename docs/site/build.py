"""Builds the docs site in `site/`, and checks its links: `make docs-site`.

    python -m docs.site.build [--stage DIR]

The pages are those of `docs/` in the navigation of `mkdocs.yml`, and the changelog. They are copied to a
directory first, because links from `docs/` to the rest of the repository must lead to GitHub on the site. Nothing is
fetched. With --stage, only the copy is made, at DIR.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from docs.site.api_markdown import with_api
from docs.site.links import broken_links
from docs.site.llms import llms_full_txt, llms_txt
from docs.site.offline import add_offline_search
from docs.site.pages import DOCS, ROOT, Page, load_config, pages_of, with_site_links

SITE = ROOT / "site"

#: The page that is `CHANGELOG.md`.
CHANGELOG = "changelog.md"

#: What is copied as it is: examples and pictures that pages link to.
COPIED = ("examples/*.json", "**/*.svg", "**/*.png")

#: Pages that search finds as a whole: their headings repeat those of guides, which should come first.
WHOLE = ("migration", "changelog")


def stage(directory: Path) -> list[Page]:
    """Writes the pages, and the configuration for Zensical, to a new directory, and returns the pages."""
    config = load_config()
    pages = list(pages_of(config["nav"]))
    texts = {page.path: (DOCS / page.path).read_text(encoding="utf-8") for page in pages if page.path != CHANGELOG}
    texts[CHANGELOG] = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    copied = [path.relative_to(DOCS).as_posix() for pattern in COPIED for path in DOCS.glob(pattern)]
    known = {*texts, *copied}
    for path, text in texts.items():
        _write(directory / "docs" / path, with_site_links(text, path, known, config["repo_url"]))
    for path in copied:
        (directory / "docs" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(DOCS / path, directory / "docs" / path)
    _write(directory / "docs" / "assets" / "site.css", (DOCS / "site" / "site.css").read_text(encoding="utf-8"))
    _write(directory / "mkdocs.yml", yaml.safe_dump(_staged(config), sort_keys=False))
    return pages


def add_markdown(staged: Path, site: Path, pages: list[Page]) -> None:
    """Writes the Markdown of each page next to its HTML, and the two files for agents."""
    config = load_config()
    files = sorted((staged / "docs").rglob("*.md"))
    texts = {file.relative_to(staged / "docs").as_posix(): with_api(file.read_text(encoding="utf-8")) for file in files}
    for path, text in texts.items():
        _write(site / path, text)
    name, summary, url = config["site_name"], config["site_description"], config["site_url"]
    _write(site / "llms.txt", llms_txt(name, summary, url, pages))
    full = {page.path: texts[page.path] for page in pages}
    _write(site / "llms-full.txt", llms_full_txt(name, summary, url, full))


def join_sections(index: Path) -> None:
    """Makes one entry of each page in `WHOLE` in the search index, whose headings then count as text."""
    search = json.loads(index.read_text(encoding="utf-8"))
    items: dict[str, Any] = {}
    for item in search["items"]:
        page = item["location"].partition("#")[0]
        if page.startswith(WHOLE) and page in items:
            items[page]["text"] += f" {item['title']} {item['text']}"
        else:
            items[page if page.startswith(WHOLE) else item["location"]] = item
    _write(index, json.dumps({**search, "items": [*items.values()]}))


def build(site: Path) -> list[str]:
    """Builds the site, and returns its broken links."""
    with TemporaryDirectory() as temporary:
        staged = Path(temporary)
        pages = stage(staged)
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", "mkdocs.yml"]
        subprocess.run(command, cwd=staged, check=True)
        add_markdown(staged, staged / "site", pages)
        join_sections(staged / "site" / "search.json")
        add_offline_search(staged / "site")
        shutil.rmtree(site, ignore_errors=True)
        shutil.copytree(staged / "site", site)
    return broken_links(site)


def _staged(config: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration for the copy, from where the package `ipybox` is elsewhere."""
    (mkdocstrings,) = (plugin["mkdocstrings"] for plugin in config["plugins"] if "mkdocstrings" in plugin)
    mkdocstrings["handlers"]["python"]["paths"] = [str(ROOT)]
    theme = {**config["theme"], "custom_dir": str(ROOT / config["theme"]["custom_dir"])}
    return {**config, "theme": theme, "docs_dir": "docs", "site_dir": "site"}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def main() -> int:
    """Builds the site, prints its broken links, and returns the exit status."""
    parser = argparse.ArgumentParser(description="Builds the docs site in site/.")
    parser.add_argument("--stage", type=Path, help="only copy the pages to this directory")
    arguments = parser.parse_args()
    if arguments.stage:
        add_markdown(arguments.stage, arguments.stage / "site", stage(arguments.stage))
        return 0
    begin = time.monotonic()
    broken = build(SITE)
    print("\n".join(broken) or f"{SITE.name}/ was built in {time.monotonic() - begin:.0f} s. No link is broken.")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
