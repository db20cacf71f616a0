"""What becomes of a server's tools when it is registered, and registered again."""

from dataclasses import dataclass

from ipybox.mcp_apigen.manifest import Manifest, ModuleRecord
from ipybox.printable import printable


@dataclass(frozen=True)
class Drift:
    """Modules whose tools a server has added, removed or changed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @classmethod
    def between(cls, old: Manifest, new: Manifest) -> "Drift":
        """Compares all that the server says about the tools; a module that is another tool's now has changed."""
        return cls(
            added=tuple(name for name in new.modules if name not in old.modules),
            removed=tuple(name for name in old.modules if name not in new.modules),
            changed=tuple(
                name for name in new.modules if name in old.modules and _differ(old.modules[name], new.modules[name])
            ),
        )


class ToolModules(list[str]):
    """The names of a package's modules, in the order of the server's tools, and what became of the package.

    Attributes:
        wire_names: The tools' own names, by the names of their modules.
        new: Whether there was no package before: nothing counts as added then.
        unknown: Why it is unknown what has changed; empty if it is known.
        added: The modules of tools that the server did not have when the package was generated before.
        removed: Those of tools that it no longer has.
        changed: Those of tools of which it says something else now: a name, a description or a schema.
        advice: What a person should know of the server's parameters, such as secrets that are written out in them.
        kept: Files that were edited where they had been generated, or whose tool is gone while there is a parser for
            it, by their names: the hidden file beside the modules that has the whole of it.
    """

    def __init__(
        self,
        wire_names: dict[str, str],
        *,
        new: bool = False,
        unknown: str = "",
        drift: Drift | None = None,
        kept: dict[str, str] | None = None,
    ):
        super().__init__(wire_names)
        drift = drift or Drift()
        self.wire_names = wire_names
        self.new = new
        self.unknown = unknown
        self.added = drift.added
        self.removed = drift.removed
        self.changed = drift.changed
        self.kept = kept or {}
        self.advice: list[str] = []

    def warnings(self) -> list[str]:
        """Returns a line for each thing that somebody should look at."""
        lines = [*self.advice, *([f"can't tell which tools changed: {self.unknown}"] if self.unknown else [])]
        for word, names in (("changed", self.changed), ("added", self.added), ("removed", self.removed)):
            if names:
                hint = "" if word == "removed" else " (read before you trust)"
                lines.append(f"{word}: {', '.join(names)}{hint}")
        lines += [f"{name} was edited or its tool is gone: kept as {place}" for name, place in self.kept.items()]
        return [printable(line) for line in lines]


def _differ(old: ModuleRecord, new: ModuleRecord) -> bool:
    return new.sha256 is None or old.sha256 != new.sha256
