"""Looks at the docs site in headless Chromium, and saves a screenshot of each page: `make docs-look`.

    python -m docs.site.look [--screenshots DIR] [PAGE]...

Each page is opened light and dark, on a wide screen and on a phone, and each picture light and dark. What a program can
see is checked: text that is hard to read, pages that are wider than the screen, images that do not load, errors of
scripts, requests to other hosts, and whether search finds something, with a server and from the disk. The rest is for
your eyes.
"""

import argparse
import asyncio
import functools
import http.server
import itertools
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docs.site.browser import Tab, chromium
from docs.site.build import SITE
from docs.site.pages import load_config, pages_of

SCREENSHOTS = SITE.parent / ".screenshots"

SCHEMES = ("light", "dark")

#: Width and height in pixels.
SCREENS = {"wide": (1280, 900), "phone": (390, 844)}

#: Pixels of a screenshot: longer pages end there.
MAX_HEIGHT = 12_000

#: A word that is on several pages.
SEARCHED = "elicitation"

LOOK = (Path(__file__).parent / "look.js").read_text(encoding="utf-8")

#: Opens search.
OPEN_SEARCH = "document.querySelector('.md-search__button').click()"

#: Returns the titles that search found, after waiting for them, and nothing after five seconds.
FOUND = """new Promise((resolve) => {
  const end = Date.now() + 5000;
  const look = () => {
    const roots = [...document.querySelectorAll("*")].map((each) => each.shadowRoot).filter(Boolean);
    const found = roots.flatMap((root) => [...root.querySelectorAll("[role=listbox] a")]);
    if (found.length || Date.now() > end) resolve(found.map((each) => each.textContent));
    else requestAnimationFrame(look);
  };
  look();
})"""

#: Returns whether the field of the search is there, after waiting for it.
READY = """new Promise((resolve) => {
  const end = Date.now() + 5000;
  const look = () => {
    const there = [...document.querySelectorAll("*")].some((each) => each.shadowRoot?.activeElement?.matches("input"));
    if (there || Date.now() > end) resolve(there);
    else requestAnimationFrame(look);
  };
  look();
})"""


@dataclass(frozen=True)
class View:
    """How a page is shown."""

    scheme: str
    screen: str

    def __str__(self) -> str:
        return f"{self.scheme}, {self.screen}"


VIEWS = [View(*view) for view in itertools.product(SCHEMES, SCREENS)]


class Watch:
    """What the browser reports while it shows a page: errors, and requests to other hosts.

    Attributes:
        problems: A sentence for each.
    """

    def __init__(self, host: str) -> None:
        self.problems: list[str] = []
        self._host = host

    def take(self, method: str, event: dict[str, Any]) -> None:
        """Looks at an event."""
        match method:
            case "Runtime.exceptionThrown":
                self.problems.append(f"error of a script: {event['exceptionDetails']['text']}")
            case "Log.entryAdded" if event["entry"]["level"] == "error":
                address = event["entry"].get("url", "")
                # The browser asks for an icon of its own accord if it shows a picture.
                if not address.endswith("/favicon.ico"):
                    self.problems.append(f"error: {event['entry']['text']} {address}")
            case "Network.requestWillBeSent":
                address = urlsplit(str(event["request"]["url"]))
                if address.scheme in ("http", "https", "ws", "wss") and address.netloc != self._host:
                    self.problems.append(f"asks another host: {event['request']['url']}")
            case _:
                pass


async def look_at(tab: Tab, watch: Watch, address: str, view: View, screenshot: Path) -> list[str]:
    """Opens a page or a picture, saves a screenshot, and returns what is wrong with it."""
    width, height = SCREENS[view.screen]
    # A page stores its colors when it was shown, and when they change while it is shown.
    await tab.open("about:blank")
    await set_view(tab, view)
    await tab.call(
        "Storage.clearDataForOrigin", origin="{0.scheme}://{0.netloc}".format(urlsplit(address)), storageTypes="all"
    )
    watch.problems = []
    await tab.open(address)
    found: list[str] = await tab.evaluate(LOOK)
    shown: dict[str, int] = (await tab.call("Page.getLayoutMetrics"))["cssContentSize"]
    await tab.save_screenshot(screenshot, width, min(max(height, round(shown["height"])), MAX_HEIGHT))
    return found + watch.problems


async def set_view(tab: Tab, view: View) -> None:
    """Makes the browser show pages in a way."""
    width, height = SCREENS[view.screen]
    # Recordings show their end without motion.
    features = {"prefers-color-scheme": view.scheme, "prefers-reduced-motion": "reduce"}
    await tab.call("Emulation.setEmulatedMedia", features=[{"name": n, "value": v} for n, v in features.items()])
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": view.screen == "phone"}
    await tab.call("Emulation.setDeviceMetricsOverride", **metrics)


async def search(tab: Tab, address: str) -> list[str]:
    """Searches on a page, and returns what is wrong."""
    await tab.open(address)
    await tab.evaluate(OPEN_SEARCH)
    if not await tab.evaluate(READY):
        return ["search did not open"]
    await tab.call("Input.insertText", text=SEARCHED)
    return [] if await tab.evaluate(FOUND) else [f"search did not find {SEARCHED!r}"]


async def look(names: list[str], screenshots: Path) -> int:
    """Looks at pages and pictures, prints what is wrong, each with its place, and returns how much that is."""
    pictures = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.svg") if "assets" not in path.parts)
    views = [(name, view) for name in names for view in VIEWS]
    views += [(name, view) for name in pictures for view in VIEWS if view.screen == "wide"]
    base = urlsplit(str(load_config()["site_url"])).path
    problems = 0

    def report(place: str, wrong: list[str]) -> None:
        nonlocal problems
        problems += len(wrong)
        for each in wrong:
            print(f"{place}: {each}", flush=True)

    with server(base) as host:
        async with chromium() as tab:
            watch = Watch(host)
            tab.events = watch.take
            for domain in ("Page", "Runtime", "Log", "Network"):
                await tab.call(f"{domain}.enable")
            for name, view in views:
                file = screenshots / f"{name.replace('/', '-')}-{view.scheme}-{view.screen}.png"
                wrong = await look_at(tab, watch, f"http://{host}{base}{name}", view, file)
                report(f"{name} ({view})", wrong)
            for address in (f"http://{host}{base}index.html", (SITE / "index.html").as_uri()):
                report(address, await search(tab, address))
    return problems


@contextmanager
def server(base: str) -> Generator[str]:
    """Serves the site on a free port of this machine, and yields host and port.

    Args:
        base: The path of the site, which the page about missing pages refers to.
    """
    handler = functools.partial(_Handler, base=base, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{serving.server_port}"
        serving.shutdown()


class _Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, base: str, **kwargs: Any) -> None:
        self._base = base
        super().__init__(*args, **kwargs)

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.removeprefix(self._base))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass


def address_of(path: str) -> str:
    """Returns the address of a page within the site."""
    return str(Path(path).with_suffix(".html")).replace("README.html", "index.html")


def main() -> int:
    """Looks at the site, prints what is wrong, and returns the exit status."""
    parser = argparse.ArgumentParser(description="Looks at the docs site in headless Chromium.")
    parser.add_argument(
        "--screenshots", type=Path, default=SCREENSHOTS, help="where to save them (default: .screenshots)"
    )
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as quickstart.html (default: all)")
    arguments = parser.parse_args()
    paths = [page.path for page in pages_of(load_config()["nav"])]
    names = arguments.pages or [*(address_of(path) for path in paths), "404.html"]
    problems = asyncio.run(look(names, arguments.screenshots))
    print(f"{len(names)} pages were looked at: {problems} problems. The screenshots are in {arguments.screenshots}.")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
