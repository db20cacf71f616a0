"""`llms.txt` and `llms-full.txt`: a list of the pages for agents, and all pages in one file. https://llmstxt.org"""

from collections.abc import Iterable, Mapping
from itertools import groupby

from docs.site.pages import Page


def llms_txt(name: str, summary: str, url: str, pages: Iterable[Page]) -> str:
    """Returns the list: a section for each section of the navigation, with the addresses of the pages' Markdown."""
    text = f"# {name}\n\n> {summary}\n\nAll pages in one file: [llms-full.txt]({url}llms-full.txt)\n"
    for section, members in groupby(pages, key=lambda page: page.section):
        text += f"\n## {section}\n\n" + "".join(f"- [{page.title}]({url}{page.path})\n" for page in members)
    return text


def llms_full_txt(name: str, summary: str, url: str, texts: Mapping[str, str]) -> str:
    """Returns all pages, each after a line with its address.

    Args:
        name: The name of the site.
        summary: One sentence about it.
        url: The address of the site.
        texts: The Markdown of the pages, by their paths.
    """
    pages = "".join(f"\n<!-- {url}{path} -->\n\n{text.strip()}\n" for path, text in texts.items())
    return f"# {name}\n\n> {summary}\n{pages}"
