"""`docs/economics.md` and its plots, from the measured data."""

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.economics import plots
from benchmarks.economics.clients import SCHEMAS, TOOLS
from benchmarks.economics.results import PARTS, Economics, Session
from benchmarks.economics.tasks import PHOTOS, TASKS, VARIANTS, WAYS, Way

#: Why the figures of a variant differ from those of `code`.
VARIANT_TEXTS: dict[Way, str] = {
    "code, a look first": "the model does not know the shape of a result, and prints its beginning before it acts",
    "code, skill loaded": "the user names the skill, so the model loads it",
    "code, captured": "the cell keeps the photos from being shown, with IPython's `capture_output`",
}

INTRODUCTION = """\
# Economics

What tasks cost a model by four ways to use tools, in tokens, bytes and round trips, and where code costs more than it
saves. `make economics` measures all figures and writes this page.

| way | what the model does |
| --- | --- |
| JSON tools | the MCP server's tools are the client's, all definitions are in each request |
| tool search | the client defers definitions; the model loads those that it needs by name, without a miss |
| code | the plugin `codeact-default`, the server registered: one cell searches tools, one does the task |
| saved action | the same in a later session, in which a saved code action does the task |

{losses}

## With {tools} tools

![Tokens of all requests with {tools} tools, by part](economics/parts.svg)

- *All requests* is the sum over a session: each request repeats what was there before. *At the end* is the last
  request, which is what the context holds then. *Written* is what the model wrote in order to use tools.
- *Price* is what the session costs with a cache for prompts, in thousands of input tokens: 1.25 for a token that is
  new, 0.1 for each repetition, 5 for a token that the model writes. The factors are those of Anthropic's price list;
  others differ.
- Bold is the lowest of a task. *Round trips* are requests to the model, the answer included.
"""

#: Tokens of a photo, which has 640 by 480 pixels.
PHOTO_TOKENS = 410

IMAGES = """\
- Images: by JSON tools and tool search the model looks at all {photos} photos, judges by eye, and can't make the
  picture. Code measures and makes it. ipybox shows the model up to 8 of the images that tools return.
- The filesystem server returns each photo twice: as an image, and as base64 in structured content. The client sends
  both to the model, which is nearly all that JSON tools and tool search take here. As images alone, all photos would
  be {tokens:,} tokens in a request.
"""

METHOD = """\
## How it is measured

- The real client ({client}) runs offline. A script is the model, and sees to it that each step only uses what earlier
  results have shown. What the client sends without servers and plugin, its prompt and its own tools, is subtracted.
- JSON tools and tool search get the best case: no call fails, and calls that don't depend on each other are made in
  one turn.
- GitHub's server is a stand-in over invented data in the real one's format. {origin}
- The join and the images add the 14 tools of the reference filesystem server, which is the real one. The servers are
  registered, and `search_repositories` has its output parser.
- Tokens are those of the tokenizer in the package `{tokenizer}`, Anthropic's last public one, which needs no download.
  It is that of Claude 2: Anthropic calls it a rough estimate for later models, and we can't measure how far off it is
  without their API. Compare figures of this page with each other, not with a bill. The data have 1 token for
  {ratio:.1f} bytes of text on average.
- The tokens of an image are its width × height ÷ 750, as Anthropic's guide to vision estimates. In bytes it counts as
  base64.
- The answer in words, which is the same by each way, and thinking are not counted.
- The data are in `benchmarks/economics.json`. Paths of the machine that measured are part of them, a few tokens in
  each result.
"""


#: Where the definitions of GitHub's tools came from.
REAL = "Its definitions are those of the real one: 10\n  and 50 are the first of its 117, 500 repeat them."
REPEATED = """\
**In this run it repeated the two
  definitions of its own under other names**, because those of the real server, which are not part of the repository,
  were not next to the checkout (see [benchmarks](../benchmarks/README.md)). They are a fifth longer than the 117 real
  ones on average, which makes JSON tools look worse than they are, and a search among them is easier than among 117
  tools that differ."""


def write_page(data: Economics, docs: Path) -> None:
    """Writes the page and its plots.

    Args:
        data: What was measured.
        docs: The directory of the page.
    """
    (docs / "economics").mkdir(exist_ok=True)
    (docs / "economics" / "parts.svg").write_text(plots.parts(data, TOOLS))
    (docs / "economics" / "growth.svg").write_text(plots.growth(data))
    (docs / "economics.md").write_text("\n".join(_page(data)))


def _page(data: Economics) -> Iterator[str]:
    yield INTRODUCTION.format(losses="\n".join(_losses(data)), tools=TOOLS)
    yield from _overview(data)
    yield from _where_it_goes(data)
    yield from _growth(data)
    yield from _once(data)
    texts = [session.total() for session in data.sessions if session.task != "images"]
    ratio = sum(size.bytes for size in texts) / sum(size.tokens for size in texts)
    definitions = REAL if data.definitions == SCHEMAS.name else REPEATED
    yield METHOD.format(client=data.client, origin=definitions, tokenizer=data.tokenizer, ratio=ratio)


def _losses(data: Economics) -> Iterator[str]:
    """Yields where code takes more than the client's own ways."""
    yield "**Where code loses**:"
    yield ""
    for task in TASKS:
        for other in ("tool search", "JSON tools"):
            ratios = {
                count: _total(data, task.name, "code", count) / _total(data, task.name, other, count)
                for count in data.counts
            }
            lost = [f"{ratio:.1f} × with {count} tools" for count, ratio in ratios.items() if ratio > 1]
            if lost:
                yield f"- Tokens of all requests, compared with {other}: *{task.title}* {', '.join(lost)}."
    yield f"- Round trips, one more than JSON tools: {_more(data, _trips)}."
    yield f"- Tokens that the model writes, more than with JSON tools: {_more(data, _written)}."
    yield ""
    yield (
        "The reason: ipybox's own definitions and instructions, and a round trip to look up interfaces, cost more\n"
        "than short results do. Code saves most where results are long and the answer is short."
    )


def _more(data: Economics, size: Callable[[Session], int]) -> str:
    """Returns the tasks for which code takes more of something than JSON tools."""
    pairs = {task.title: [data.find(task.name, way, TOOLS) for way in ("code", "JSON tools")] for task in TASKS}
    return ", ".join(f"*{title}*" for title, (code, other) in pairs.items() if size(code) > size(other))


def _trips(session: Session) -> int:
    return len(session.requests)


def _written(session: Session) -> int:
    return session.written().tokens


def _overview(data: Economics) -> Iterator[str]:
    yield "| task | way | round trips | all requests | | relative to tool search | at the end | written | price |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for task in TASKS:
        ways = (*WAYS[:3], *VARIANTS.get(task.name, ()), WAYS[3])
        sessions = [data.find(task.name, way, TOOLS) for way in ways]
        search = data.find(task.name, "tool search", TOOLS)
        least = min(session.total().tokens for session in sessions)
        for session in sessions:
            yield _row(session, search, task.title if session is sessions[0] else "", least)
    yield ""
    for variants in VARIANTS.values():
        yield from (f"- *{way}*: {VARIANT_TEXTS[way]}." for way in variants)
    yield IMAGES.format(photos=PHOTOS, tokens=PHOTOS * PHOTO_TOKENS)


def _row(session: Session, search: Session, title: str, least: int) -> str:
    total = session.total()
    tokens = f"{total.tokens:,}"
    relative = "" if session is search else f"{total.tokens / search.total().tokens:.2f} ×"
    cells = [
        title,
        session.way,
        str(len(session.requests)),
        f"**{tokens}**" if total.tokens == least else tokens,
        f"{total.bytes / 1000:.1f} kB",
        relative,
        f"{session.last().tokens:,}",
        f"{session.written().tokens:,}",
        f"{session.price() / 1000:.1f}k",
    ]
    return f"| {' | '.join(cells)} |"


def _where_it_goes(data: Economics) -> Iterator[str]:
    yield "## Where the tokens go"
    yield ""
    yield (
        f"Tokens of all requests with {TOOLS} tools. *Notices* are the server's instructions, the skill's line,\n"
        "and names of deferred tools. *Discovery* is what searches of tools return. *Code* is what the model wrote,\n"
        "calls or code, in each later request."
    )
    yield ""
    yield f"| task | way | {' | '.join(PARTS)} |"
    yield f"| --- | --- |{' ---: |' * len(PARTS)}"
    for task in TASKS:
        for way in (*WAYS[:3], *VARIANTS.get(task.name, ()), WAYS[3]):
            session = data.find(task.name, way, TOOLS)
            sizes = [session.total(part).tokens for part in PARTS]
            numbers = [f"{size:,}" if size else "" for size in sizes]
            yield f"| {task.title if way == WAYS[0] else ''} | {way} | {' | '.join(numbers)} |"
    yield ""


def _growth(data: Economics) -> Iterator[str]:
    yield "## With more tools, and with fewer"
    yield ""
    yield "![Tokens by number of tools for a loop and for a single short call](economics/growth.svg)"
    yield ""
    yield "In the chart, *ipybox* is the way *code*. The table shows all tasks."
    yield ""
    yield f"| task | way | {' | '.join(f'{count} tools' for count in data.counts)} |"
    yield f"| --- | --- |{' ---: |' * len(data.counts)}"
    for task in TASKS:
        totals = {way: [_total(data, task.name, way, count) for count in data.counts] for way in WAYS}
        least = [min(each) for each in zip(*totals.values(), strict=True)]
        for way, numbers in totals.items():
            cells = [
                f"**{number:,}**" if number == best else f"{number:,}"
                for number, best in zip(numbers, least, strict=True)
            ]
            yield f"| {task.title if way == WAYS[0] else ''} | {way} | {' | '.join(cells)} |"
    yield ""


def _once(data: Economics) -> Iterator[str]:
    yield "## What is needed once"
    yield ""
    registered = [data.find("documented", "registration", count).last().tokens for count in data.counts]
    shown = ", ".join(f"{tokens:,} with {count}" for count, tokens in zip(data.counts, registered, strict=True))
    yield (f"The session that registers the server lists its tools. At its end the context holds, in tokens: {shown}.")
    yield ""


def _total(data: Economics, task: str, way: str, tools: int) -> int:
    return data.find(task, way, tools).total().tokens
