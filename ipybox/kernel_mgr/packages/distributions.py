"""Reads which distributions are installed from metadata alone: no code of any package runs."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


def closure(name: str) -> dict[str, str]:
    """Returns the versions of an installed distribution and of all that it needs here, by normalized name."""
    versions: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    pending = [(name, frozenset[str]())]
    while pending:
        name, extras = pending.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # broken, but not by this install
        versions[name] = found.version
        pending += [(canonicalize_name(need.name), frozenset(need.extras)) for need in needs(found, extras)]
    return versions


def needs(found: Distribution, extras: Collection[str] = ()) -> Iterator[Requirement]:
    """Yields the requirements of a distribution that hold here, and with these extras."""
    for text in found.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or ("",)):
            yield requirement


def unmet(earlier: Iterable[Distribution], planned: Mapping[str, str]) -> list[str]:
    """Returns conflicts with the planned versions: requirements of earlier distributions."""
    reasons: list[str] = []
    for found in earlier:
        name = canonicalize_name(found.name)
        if name in planned:
            continue
        for need in needs(found):
            version = planned.get(canonicalize_name(need.name))
            if version is not None and not need.specifier.contains(version, prereleases=True):
                reasons.append(f"the installed {name} {found.version} requires {need}, not {version}")
    return reasons
