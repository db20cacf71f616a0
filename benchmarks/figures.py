"""Figures and limits in words."""

from benchmarks.measurement import Limit, Measurement, Unit


def figure(value: float | None, unit: Unit) -> str:
    """Returns a figure with three digits that count, and its unit; empty for None."""
    if value is None:
        return ""
    match unit:
        case "calls/s":
            return f"{value:,.0f} /s"
        case "B":
            return f"{_three_digits(value / 1000)} kB"
        case "MiB":
            return f"{_three_digits(value)} MiB"
        case "s":
            return f"{_three_digits(value * 1000)} ms" if abs(value) < 0.1 else f"{_three_digits(value)} s"


def factor(value: float | None) -> str:
    """Returns a ratio in words; empty for None."""
    return "" if value is None else f"{_three_digits(value)} ×"


def describe(limit: Limit, measurement: Measurement) -> str:
    """Returns a limit in words."""
    terms: list[str] = []
    if limit.times:
        terms.append(limit.side if limit.times == 1 else f"{limit.times:g} × {limit.side}")
    if limit.plus:
        terms.append(_exact(limit.plus, measurement.unit))
    origin = f" ({limit.origin})" if limit.origin else ""
    return f"{'≥' if measurement.more_is_better else '≤'} {' + '.join(terms)}{origin}"


def _exact(value: float, unit: Unit) -> str:
    if unit != "s":
        return f"{value:g} {unit}"
    return f"{value * 1000:g} ms" if value < 0.1 else f"{value:g} s"


def _three_digits(value: float) -> str:
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"
