"""The results as text and as JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.codegen.measure import Measured, Outcome
from benchmarks.codegen.typecheck import Types
from benchmarks.figures import figure
from benchmarks.machine import describe_machine, machine
from benchmarks.measurement import Side

#: Bytes of a token, to have an idea.
TOKEN = 4
# What is listed of one kind; all of it is in the JSON.
_LISTED = 10
_WIDTH = 300


@dataclass(frozen=True)
class Report:
    """All that was measured.

    Attributes:
        corpora: What came of each.
        types: What pyright says of our packages; None if it wasn't asked.
        versions: What was compared.
    """

    corpora: Sequence[Measured]
    types: Types | None
    versions: Mapping[Side, str]


def table(report: Report) -> Table:
    """A row for each corpus and side, and for all corpora together."""
    view = Table(box=box.SIMPLE_HEAD)
    view.add_column("corpus", style="cyan")
    view.add_column("by")
    for heading in ("tools", "import errors", "type errors", "alias errors", "agreement"):
        view.add_column(heading, justify="right")
    for heading in ("generated in", "imported in", "bytes", "tokens"):
        view.add_column(heading, justify="right")
    rows = [(measured.corpus.name, [measured]) for measured in report.corpora]
    if len(rows) > 1:
        rows.append(("all", list(report.corpora)))
    for name, group in rows:
        for side in report.versions:
            view.add_row(name, side, *_cells(group, side, report.types))
    return view


def lines(report: Report) -> Iterator[str]:
    """What the table has no place for."""
    for measured in report.corpora:
        for line in _about(measured):
            yield f"{measured.corpus.name}: {line}"
    if report.types is not None:
        rules = ", ".join(f"{count} × {rule}" for rule, count in report.types.by_rule.items())
        yield f"pyright: {rules or 'no errors'}; it took {figure(report.types.seconds, 's')}"
        yield from _some([f"{each.package}.{each.module}: {each.message}" for each in report.types.findings])
    versions = ", ".join(f"{side}: {version}" for side, version in report.versions.items())
    yield f"{versions}; {describe_machine(machine())}"


def record(report: Report) -> dict[str, Any]:
    """Everything, for a JSON file."""
    types = report.types
    return {
        "versions": dict(report.versions),
        "machine": machine().model_dump(),
        "types": types and {"errors": len(types.findings), "by_rule": types.by_rule, "seconds": types.seconds},
        "corpora": [_record(measured, types) for measured in report.corpora],
    }


def _record(measured: Measured, types: Types | None) -> dict[str, Any]:
    sides: dict[str, Any] = {}
    for side, outcome in measured.outcomes.items():
        sides[side] = asdict(outcome) | {"tokens": outcome.bytes // TOKEN, "agreement": _agreement([measured], side)}
    if types is not None:
        sides["ipybox"]["type_errors"] = [asdict(each) for each in types.of(measured.package)]
    return {
        "name": measured.corpus.name,
        "tools": len(measured.corpus.tools),
        "cases": len(measured.corpus.cases),
        "remote": measured.corpus.remote,
        "untried": measured.untried,
        "warnings": measured.warnings,
        "sides": sides,
    }


def _cells(group: Sequence[Measured], side: Side, types: Types | None) -> Iterator[str]:
    outcomes = [each.outcomes[side] for each in group]
    agreed = _agreement(group, side)
    size = sum(each.bytes for each in outcomes)
    yield str(sum(len(each.corpus.tools) for each in group))
    yield str(sum(len(each.import_errors) for each in outcomes))
    found = None if types is None or side != "ipybox" else [types.of(each.package) for each in group]
    yield "" if found is None else str(sum(map(len, found)))
    yield str(sum(len(each.alias_errors) for each in outcomes))
    yield "" if agreed is None else f"{agreed:.2%}"
    yield figure(sum(each.seconds for each in outcomes), "s")
    yield figure(sum(each.import_seconds for each in outcomes), "s")
    yield f"{size:,}"
    yield f"{size // TOKEN:,}"


def _agreement(group: Sequence[Measured], side: Side) -> float | None:
    """The share of the suite's cases in which a side agrees; None without cases."""
    cases = sum(len(each.corpus.cases) for each in group)
    return 1 - sum(len(each.outcomes[side].disagreements) for each in group) / cases if cases else None


def _about(measured: Measured) -> Iterator[str]:
    ours, peer = measured.outcomes["ipybox"], measured.outcomes.get("peer")
    if peer is not None:
        yield f"{ours.seconds / peer.seconds:.1%} of the peer's time, {ours.bytes / peer.bytes:.1%} of its bytes"
    for side, outcome in measured.outcomes.items():
        yield from (f"{side}: {line}" for line in _summaries(outcome))
    if measured.corpus.remote:
        yield f"{measured.corpus.remote} groups omitted: their schemas refer to something outside"
    if measured.untried:
        yield f"properties not tried, as no value was found for them: {len(measured.untried)}"
        yield from _some(measured.untried)
    if measured.warnings:
        yield f"warnings of ipybox's generator: {len(measured.warnings)}"
        yield from _some(measured.warnings)
    yield from _some([f"{module}: {error}" for module, error in ours.import_errors.items()])
    yield from _some([f"{module}: {'; '.join(losses)}" for module, losses in ours.alias_errors.items()])
    for each in sorted(ours.disagreements, key=lambda each: (each.reason, each.place)):
        yield f"{each.reason}: {each.place}"


def _summaries(outcome: Outcome) -> Iterator[str]:
    losses = Counter(kind for each in outcome.alias_errors.values() for kind in set(_kinds(each)))
    if losses:
        yield f"alias errors: {', '.join(f'{kind} in {count} tools' for kind, count in losses.most_common())}"
    reasons = Counter(_kinds(each.reason for each in outcome.disagreements))
    if reasons:
        yield f"disagreements: {', '.join(f'{count} × {reason}' for reason, count in reasons.most_common())}"


def _kinds(reasons: Iterable[str]) -> list[str]:
    return [reason.partition(":")[0] for reason in reasons]


def _some(items: Sequence[str]) -> Iterator[str]:
    yield from (f"  {item[:_WIDTH]}" for item in islice(items, _LISTED))
    if len(items) > _LISTED:
        yield f"  … and {len(items) - _LISTED} more"
