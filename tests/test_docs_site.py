"""The pages of the docs site, their Markdown for agents, and the check of links that `make docs-site` runs.

They need nothing that makes HTML: `make docs-site` installs that.
"""

import inspect
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from docs.site.build import add_markdown, join_sections, stage
from docs.site.links import broken_links
from docs.site.offline import add_offline_search
from docs.site.pages import DOCS, Page, load_config, pages_of
from ipybox import errors

#: Bytes that an agent reads: the list, and everything. Half of the context of a model is about 400 kB.
MAX_LIST, MAX_FULL = 10_000, 400_000

#: Words of a page: ten minutes at 240 a minute.
MAX_WORDS = 2_400

#: Pages and words of the site, and words of `dev/`.
MAX_PAGES, MAX_SITE, MAX_DEV = 25, 28_000, 12_000

#: The sections of the navigation, in the order in which a newcomer needs them.
SECTIONS = ("Home", "Start", "Use", "Control", "Scale", "Understand", "Reference")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Page]]:
    """A directory with the pages in `docs/`, and with what agents read in `site/`; and the list of pages."""
    directory = tmp_path_factory.mktemp("staged")
    pages = stage(directory)
    add_markdown(directory, directory / "site", pages)
    return directory, pages


def test_every_page_is_in_the_navigation():
    files = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("*.md")}
    pages = [page.path for page in pages_of(load_config()["nav"])]

    assert files <= {*pages}
    assert len(pages) == len({*pages})


def test_navigation_leads_from_the_start_to_the_reference():
    sections = [page.section for page in pages_of(load_config()["nav"])]

    assert tuple(dict.fromkeys(sections))[: len(SECTIONS)] == SECTIONS


def test_homepage_of_the_plugins_is_a_page():
    config = load_config()
    plugins = json.loads((DOCS.parent / ".claude-plugin" / "marketplace.json").read_text())["plugins"]
    addresses = {config["site_url"] + page.path.replace(".md", ".html") for page in pages_of(config["nav"])}

    assert {plugin["homepage"] for plugin in plugins} <= addresses


def test_no_page_takes_more_than_ten_minutes_to_read():
    paths = [DOCS / page.path for page in pages_of(load_config()["nav"])]
    words = {path.name: len(path.read_text().split()) for path in paths if path.exists()}  # one page is made

    assert len(words) > 20
    assert {name: number for name, number in words.items() if number > MAX_WORDS} == {}


def test_a_newcomer_can_read_the_whole_site(staged: tuple[Path, list[Page]]):
    directory, pages = staged

    assert len(pages) <= MAX_PAGES
    assert _words(directory / "docs" / page.path for page in pages) <= MAX_SITE
    assert _words((DOCS.parent / "dev").rglob("*.md")) <= MAX_DEV


def _words(files: Iterable[Path]) -> int:
    return sum(len(file.read_text().split()) for file in files)


def test_every_column_of_a_table_has_a_heading():
    texts = {page.path: DOCS / page.path for page in pages_of(load_config()["nav"])}
    headings = {
        path: re.findall(r"^\|(.*)\|\n\| ?-", file.read_text(), re.MULTILINE)
        for path, file in texts.items()
        if file.exists()  # some pages are made
    }

    assert sum(map(len, headings.values())) > 50
    assert [
        (path, row) for path, rows in headings.items() for row in rows if "" in map(str.strip, row.split("|"))
    ] == []


def test_relative_links_of_the_pages_lead_to_files_of_the_site(staged: tuple[Path, list[Page]]):
    directory, pages = staged
    for page in pages:
        file = directory / "docs" / page.path
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
        links = re.findall(r"\]\((?!https?:|mailto:)([^)#]+)", text)
        assert [link for link in links if not (file.parent / link).is_file()] == [], page.path


def test_agents_get_a_list_of_all_pages(staged: tuple[Path, list[Page]]):
    directory, pages = staged
    text = (directory / "site" / "llms.txt").read_text()
    url = load_config()["site_url"]

    assert text.startswith("# ipybox\n\n> ")
    assert re.findall(r"^- \[.*\]\((.*)\)$", text, re.MULTILINE) == [url + page.path for page in pages]
    assert len(text.encode()) < MAX_LIST


def test_agents_get_all_pages_in_one_file(staged: tuple[Path, list[Page]]):
    directory, pages = staged
    text = (directory / "site" / "llms-full.txt").read_text()

    for page in pages:
        assert (directory / "site" / page.path).read_text().strip() in text, page.path
    assert len(text.encode()) < MAX_FULL


def test_agents_get_signatures_and_docstrings(staged: tuple[Path, list[Page]]):
    directory, _ = staged
    text = (directory / "site" / "sdk.md").read_text()

    assert "\n:::" not in text
    assert "#### `async execute(code: str, timeout: float | None=120, *, approver:" in text
    assert "approval_timeout: Seconds until a tool call that is neither accepted nor rejected fails" in text


def test_pages_opened_from_the_disk_have_index_and_worker_of_the_search_in_a_script(tmp_path: Path):
    (tmp_path / "search.json").write_text('{"items": [{"title": "\u2028 <p>"}]}')
    workers = tmp_path / "assets" / "javascripts" / "workers"
    workers.mkdir(parents=True)
    (workers / "search.0123.min.js").write_text('self.postMessage("ready")')

    add_offline_search(tmp_path)

    index, _, rest = (tmp_path / "search.js").read_text().removeprefix("var __index = ").partition(";\n")
    assert json.loads(index) == {"items": [{"title": "\u2028 <p>"}]}
    assert json.dumps('self.postMessage("ready")') in rest


def test_pages_ask_no_other_host_for_facts_about_the_repository(staged: tuple[Path, list[Page]]):
    theme = Path(yaml.safe_load((staged[0] / "mkdocs.yml").read_text())["theme"]["custom_dir"])
    link = (theme / "partials" / "source.html").read_text().partition("-#}")[2]

    assert "config.repo_url" in link
    assert "data-md-component" not in link


def test_search_finds_guides_before_notes_for_users_of_an_earlier_version(tmp_path: Path):
    locations = ("approvals.html", "approvals.html#rules", "migration.html", "migration.html#rules")
    items = [{"location": name, "title": "Rules", "text": "about rules"} for name in locations]
    (tmp_path / "search.json").write_text(json.dumps({"items": items}))

    join_sections(tmp_path / "search.json")

    kept = {item["location"]: item["text"] for item in json.loads((tmp_path / "search.json").read_text())["items"]}
    assert kept == {**dict.fromkeys(locations[:2], "about rules"), "migration.html": "about rules Rules about rules"}


def test_each_error_is_in_troubleshooting():
    page = (DOCS / "troubleshooting.md").read_text()
    classes = [
        name
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, Exception) and each.__module__ == "ipybox.support.errors" and not name.startswith("_")
    ]

    assert len(classes) > 10
    assert [name for name in classes if f"\n| `{name}` |" not in page] == []


def test_each_finding_of_doctor_is_in_troubleshooting():
    source = "".join(path.read_text() for path in (DOCS.parent / "ipybox").glob("*/*.py"))
    named = re.findall(r'\b(?:Finding|Program)\(\s*"([\w -]+)"|^ +what = "([\w -]+)"$', source, re.MULTILINE)
    page = (DOCS / "troubleshooting.md").read_text().partition("## Findings of")[2].partition("\n## ")[0]

    findings = {first or second for first, second in named}
    assert {"srt", "user namespaces", "docker image", "socat"} <= findings
    assert [name for name in sorted(findings) if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("link", "problem"),
    [
        ('<a href="other.html#there">', None),
        ('<a href="other.html">', None),
        ('<a href="#here" id="here">', None),
        ('<a href="https://example.org/page">', None),
        ('<a href="gone.html">', "page.html: gone.html: file not found"),
        ('<a href="other.html#gone">', "page.html: other.html#gone: anchor not found"),
        ('<script src="https://example.org/a.js">', "page.html: loads https://example.org/a.js of another host"),
        ('<link rel="stylesheet" href="//example.org/a">', "page.html: loads //example.org/a of another host"),
    ],
)
def test_broken_links_are_found(link: str, problem: str | None, tmp_path: Path):
    (tmp_path / "page.html").write_text(f"<html>{link}</html>")
    (tmp_path / "other.html").write_text('<html><h2 id="there">There</h2></html>')

    assert broken_links(tmp_path) == ([] if problem is None else [problem])
