"""Values that nobody expects, and random changes of JSON, the same for the same generator of random numbers."""

import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeVar

#: Harmless as code, as a command and as the name of a package, too: nothing of that name is there to be run.
TEXTS = [
    "",
    " ",
    "\0",
    "a\0b",
    "\r\n",
    "\u2028",
    "\ufeff",
    "\u202eevil",
    "e\u0301 \U0001f4a5",
    "\x1b[2J\x1b]0;title\x07",
    "٣",
    "-1",
    "--help",
    "null",
    "NaN",
    "__proto__",
    "__class__",
    "%s%n%x",
    "{0.__class__}",
    "${FUZZ_SECRET}",
    "$(no-such-command)",
    "'; DROP TABLE x; --",
    "<script>alert(1)</script>",
    "../../../../no/such/file",
    "%2e%2e%2fno%2fsuch",
    "9" * 5000,
    "A" * 20_000,
]

NUMBERS: list[float] = [
    *(0, 1, -1, 0.5, -0.0, 2**31, 2**53 + 1, -(2**63), 2**64, 10**100, 10**400, 1e308, 1e-308),
    *(float("nan"), float("inf"), float("-inf")),
]

VALUES: list[Any] = [
    *(None, True, False, [], {}, [[]], {"": {}}, [None] * 1000, {str(n): n for n in range(1000)}),
    *NUMBERS,
    *TEXTS,
]

Item = TypeVar("Item")
Spot = tuple[Any, Any]


def nested(depth: int) -> Any:
    """Returns objects in each other."""
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def any_value(rng: random.Random) -> Any:
    """Returns one of the values, now and then a nested one."""
    return nested(rng.randrange(1, 90)) if rng.random() < 0.05 else deepcopy(rng.choice(VALUES))


def mutated(rng: random.Random, tree: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy in which one to three things are different."""
    copy = deepcopy(tree)
    for _ in range(rng.randint(1, 3)):
        if spots := list(_spots(copy)):
            rng.choice(_CHANGES)(rng, *rng.choice(spots))
    return copy


def shuffled(rng: random.Random, tree: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy with its keys in another order."""
    return {key: tree[key] for key in rng.sample(list(tree), len(tree))}


def _spots(tree: Any) -> list[Spot]:
    """Returns all places of a tree, as the container and the key or index in it."""
    match tree:
        case {**members}:
            keys = [*members]
        case [*items]:
            keys = [*range(len(items))]
        case _:
            keys = []
    return [spot for key in keys for spot in ((tree, key), *_spots(tree[key]))]


def _replace(rng: random.Random, container: Any, key: Any) -> None:
    container[key] = any_value(rng)


def _delete(rng: random.Random, container: Any, key: Any) -> None:
    del container[key]


def _wrap(rng: random.Random, container: Any, key: Any) -> None:
    container[key] = rng.choice([[container[key]], {"value": container[key]}, str(container[key])])


def _repeat(rng: random.Random, container: Any, key: Any) -> None:
    if isinstance(key, int):
        container += [container[key]] * rng.choice([1, 1000])
    else:
        container[f"{key}{rng.choice(['', '_', ' ', chr(0)])}2"] = container[key]


def _rename(rng: random.Random, container: Any, key: Any) -> None:
    if isinstance(key, str):
        container[rng.choice([key.upper(), f" {key}", f"{key}\0", rng.choice(TEXTS)])] = container.pop(key)


_CHANGES: list[Callable[[random.Random, Any, Any], None]] = [_replace, _replace, _delete, _wrap, _repeat, _rename]
