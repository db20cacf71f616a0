"""The part of `docs/benchmarks.md` about tokens, and its plot, from the measured data."""

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.economics import plots
from benchmarks.economics.clients import SCHEMAS, TOOLS
from benchmarks.economics.results import Economics, Session
from benchmarks.economics.tasks import TASKS, VARIANTS, WAYS, Way
from benchmarks.page import replace_part

#: Numbers of tools that the table shows.
SHOWN = (10, TOOLS)

LOSSES = """\
**Where code costs more.** ipybox adds its own definitions and instructions, and one request to look up interfaces.
Code takes

"""

PRICES = """\
This is the price of a session with {tools} tools, in thousands of input tokens. At Anthropic's prices, a token written
to the cache counts 1.25, a token read from it 0.1, and an output token 5:
"""

#: Why a variant of `code` takes more or less.
VARIANT_TEXTS: dict[Way, str] = {
    "code, a look first": "if the model looks at a result's shape first",
    "code, skill loaded": "if the model loads the skill",
    "code, captured": "if the cell captures images",
}

SOURCE = """\
Measured with {client} and {definitions}. Tokenizer: `{tokenizer}`, about {ratio:.1f} bytes per token.
"""

REAL = "the definitions of GitHub's MCP server"
REPEATED = "two definitions, repeated under other names, because those of GitHub's server were missing"


def write_part(data: Economics, docs: Path) -> None:
    """Writes the part and its plot.

    Args:
        data: What was measured.
        docs: The directory of the page.
    """
    (docs / "pictures").mkdir(parents=True, exist_ok=True)
    (docs / "pictures" / "tokens.svg").write_text(plots.growth(data))
    replace_part(docs, "economics", "\n".join(_part(data)))


def _part(data: Economics) -> Iterator[str]:
    yield "![Tokens by number of tools, for a loop and for a single short call](pictures/tokens.svg)\n"
    yield from _totals(data)
    yield PRICES.format(tools=TOOLS)
    yield from _prices(data)
    yield LOSSES + "\n".join(_losses(data)) + "\n"
    yield "Compared with *code*, a session takes\n"
    yield "\n".join(_variants(data)) + "\n"
    texts = [session.total() for session in data.sessions if session.task != "images"]
    ratio = sum(size.bytes for size in texts) / sum(size.tokens for size in texts)
    definitions = REAL if data.definitions == SCHEMAS.name else REPEATED
    yield SOURCE.format(client=data.client, definitions=definitions, tokenizer=data.tokenizer, ratio=ratio)


def _totals(data: Economics) -> Iterator[str]:
    yield f"| task | tools | {' | '.join(WAYS)} |"
    yield f"| --- | ---: |{' ---: |' * len(WAYS)}"
    for task in TASKS:
        for count in SHOWN:
            totals = [_total(data, task.name, way, count) for way in WAYS]
            cells = [f"**{total:,}**" if total == min(totals) else f"{total:,}" for total in totals]
            yield f"| {task.title if count == SHOWN[0] else ''} | {count} | {' | '.join(cells)} |"
    yield ""


def _prices(data: Economics) -> Iterator[str]:
    yield f"| task | {' | '.join(WAYS)} |"
    yield f"| --- |{' ---: |' * len(WAYS)}"
    for task in TASKS:
        prices = [data.find(task.name, way, TOOLS).price() / 1000 for way in WAYS]
        yield f"| {task.title} | {' | '.join(f'{price:.1f}' for price in prices)} |"
    yield ""


def _variants(data: Economics) -> Iterator[str]:
    for task in TASKS:
        for way in VARIANTS.get(task.name, ()):
            ratio = _total(data, task.name, way, TOOLS) / _total(data, task.name, "code", TOOLS)
            yield f"- {ratio:.1f} × the tokens for *{task.title}* {VARIANT_TEXTS[way]}"


def _losses(data: Economics) -> Iterator[str]:
    """Yields where code takes more than the client's own ways."""
    others: tuple[Way, ...] = ("tool search", "JSON tools")
    for task in TASKS:
        for other in others:
            ratios = {
                count: _total(data, task.name, "code", count) / _total(data, task.name, other, count)
                for count in data.counts
            }
            lost = [f"{ratio:.1f} × with {count} tools" for count, ratio in ratios.items() if ratio > 1]
            if lost:
                yield f"- more tokens than {other} for *{task.title}*: {', '.join(lost)}"
    yield f"- one more request than JSON tools for {_more(data, lambda session: len(session.requests))}"
    written = _more(data, lambda session: session.written().tokens)
    yield f"- more output tokens than JSON tools for {written}"


def _more(data: Economics, size: Callable[[Session], int]) -> str:
    """Returns the tasks for which code takes more of something than JSON tools."""
    pairs = {task.title: [data.find(task.name, way, TOOLS) for way in ("code", "JSON tools")] for task in TASKS}
    return ", ".join(f"*{title}*" for title, (code, other) in pairs.items() if size(code) > size(other))


def _total(data: Economics, task: str, way: str, tools: int) -> int:
    return data.find(task, way, tools).total().tokens
