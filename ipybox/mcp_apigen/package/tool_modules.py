"""The result of registering a server: its tool modules, and their changes since the last registration."""

from dataclasses import dataclass

from ipybox.mcp_apigen.package.manifest import Manifest, ModuleRecord
from ipybox.support.printable import printable


@dataclass(frozen=True)
class ToolChanges:
    """Modules whose tools a server has added, removed or changed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @classmethod
    def between(cls, old: Manifest, new: Manifest) -> "ToolChanges":
        """Compares the definitions of the tools; a module that now belongs to another tool has changed."""
        return cls(
            added=tuple(name for name in new.modules if name not in old.modules),
            removed=tuple(name for name in old.modules if name not in new.modules),
            changed=tuple(
                name for name in new.modules if name in old.modules and _differ(old.modules[name], new.modules[name])
            ),
        )


class ToolModules(list[str]):
    """The names of a package's modules, in the order of the server's tools, and the changes of the package.

    Attributes:
        server_name: The name that the server has as a package and in tool calls: `brave_search` for `brave-search`.
        wire_names: The tools' own names, by the names of their modules.
        new: Whether there was no package before: nothing counts as added then.
        unknown: Why the changes are unknown; empty if they are known.
        added: The modules of tools that the server did not have when the package was generated before.
        removed: Modules of tools that it no longer has.
        changed: Modules of tools whose name, description or schema says something else than at the previous
            registration. Another order that says nothing, such as that of `required`, is no change (`meaning_hash`).
        advice: Advice on the server's parameters, such as secrets in plain text, and on malformed tools.
        kept: Edited generated files, and modules with a parser whose tool is gone, by their names: the hidden file next
            to the modules that contains all of it.
    """

    def __init__(
        self,
        wire_names: dict[str, str],
        *,
        new: bool = False,
        unknown: str = "",
        drift: ToolChanges | None = None,
        kept: dict[str, str] | None = None,
    ):
        super().__init__(wire_names)
        drift = drift or ToolChanges()
        self.server_name = ""
        self.wire_names = wire_names
        self.new = new
        self.unknown = unknown
        self.added = drift.added
        self.removed = drift.removed
        self.changed = drift.changed
        self.kept = kept or {}
        self.advice: list[str] = []

    def warnings(self) -> list[str]:
        """Returns a line for each finding that needs attention."""
        lines = [*self.advice, *([f"can't tell which tools changed: {self.unknown}"] if self.unknown else [])]
        for word, names in (("changed", self.changed), ("added", self.added), ("removed", self.removed)):
            if names:
                hint = "" if word == "removed" else " (read before you trust)"
                lines.append(f"{word}: {', '.join(names)}{hint}")
        lines += [f"{name} was edited or its tool was removed; saved as {place}" for name, place in self.kept.items()]
        return [printable(line) for line in lines]


def _differ(old: ModuleRecord, new: ModuleRecord) -> bool:
    if new.sha256 is None:
        return True
    return old.sha256 != new.sha256 and (new.meaning is None or old.meaning != new.meaning)
