"""Measures what each side makes of a corpus."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

from benchmarks.codegen.corpora import Corpus
from benchmarks.codegen.instances import Sample, sample
from benchmarks.codegen.sides import Generator, ask, modules_of
from benchmarks.codegen.suite import Case
from benchmarks.measurement import Setting, Side, take_turns


@dataclass(frozen=True)
class Disagreement:
    """A case in which `Params` disagrees with the suite: it accepts or rejects falsely, or crashes."""

    reason: str
    place: str


@dataclass(frozen=True)
class Outcome:
    """What a side made of a corpus.

    Attributes:
        seconds: To generate the package, median.
        import_seconds: To import all its modules.
        bytes: Of its Python files.
        import_errors: Errors of modules that can't be imported, or were not even generated.
        alias_errors: What is not sent as it was given, by the tools' modules.
        disagreements: With the test suite.
    """

    seconds: float
    import_seconds: float
    bytes: int
    import_errors: Mapping[str, str]
    alias_errors: Mapping[str, list[str]]
    disagreements: Sequence[Disagreement]


@dataclass(frozen=True)
class Measured:
    """All about a corpus.

    Attributes:
        corpus: The corpus.
        package: The name of the package that was made of it.
        untried: Properties that no instance has, with their modules.
        warnings: What our generator warned.
        outcomes: What each side made of it.
    """

    corpus: Corpus
    package: str
    untried: list[str]
    warnings: list[str]
    outcomes: Mapping[Side, Outcome]


def measure(corpus: Corpus, package: str, sides: Mapping[Side, Generator], rounds: int) -> Measured:
    """Has all sides generate a package in turns, and tries what came out in the end."""
    samples = dict(zip(modules_of(corpus), map(sample, corpus.tools), strict=True))
    seconds = take_turns(
        Setting(rounds, {}), {side: partial(each.generate, package, corpus) for side, each in sides.items()}
    )
    warnings = [text for each in sides.values() for text in each.warnings]
    outcomes: dict[Side, Outcome] = {
        side: _tried(corpus, package, generator, median(seconds[side]), samples) for side, generator in sides.items()
    }
    untried = [f"{module}: {name}" for module, each in samples.items() for name in each.untried]
    return Measured(corpus, package, untried, warnings, outcomes)


def _tried(
    corpus: Corpus, package: str, generator: Generator, seconds: float, samples: Mapping[str, Sample]
) -> Outcome:
    modules = list(samples)
    work: dict[str, Any] = {name: asdict(each) | {"cases": []} for name, each in samples.items()}
    for case in corpus.cases:
        work[modules[case.tool]]["cases"].append({"v": case.data})
    answer = ask(generator.python, "load.py", {"root": str(generator.root), "package": package, "modules": work})
    tried: dict[str, Any] = answer["modules"]
    verdicts = {name: iter(each["verdicts"]) for name, each in tried.items()}
    found = (_disagreement(case, next(verdicts[modules[case.tool]])) for case in corpus.cases)
    failed = {name: each["import_error"] for name, each in tried.items() if each["import_error"]}
    return Outcome(
        seconds=seconds,
        import_seconds=answer["seconds"],
        bytes=sum(path.stat().st_size for path in (generator.root / "mcptools" / package).glob("*.py")),
        import_errors=failed | generator.errors,
        alias_errors={name: each["losses"] for name, each in tried.items() if each["losses"]},
        disagreements=[each for each in found if each is not None],
    )


def _disagreement(case: Case, verdict: str) -> Disagreement | None:
    if verdict == ("accepted" if case.valid else "refused"):
        return None
    reasons = {"accepted": "false accept", "refused": "false reject"}
    return Disagreement(reasons.get(verdict, verdict), case.place)
