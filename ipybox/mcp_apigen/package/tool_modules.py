"""The result of registering a server: its tool modules, and their changes since the last registration."""

from operator import attrgetter

from ipybox.mcp_apigen.package.manifest import Manifest
from ipybox.support.printable import printable
from ipybox.workspace.registrations import Registration

_TOOL = attrgetter("tool")


class ToolModules(list[str]):
    """The names of a package's modules, in the order of the server's tools, and the changes of the package.

    Attributes:
        server_name: The name that the server has as a package and in tool calls: `brave_search` for `brave-search`.
        wire_names: The tools' own names, by the names of their modules.
        new: Whether there was no package before: nothing counts as added then.
        unknown: Why the changes are unknown; empty if they are known.
        added: The modules of tools that the server did not have when the package was generated before.
        removed: Modules of tools that it no longer has.
        changed: Modules of tools whose name, description, schema or hints differ from the previous registration. Pure
            reordering, for example of `required`, is not reported (`meaning_hash`).
        advice: Advice on the server's parameters, such as secrets in plain text, and on malformed tools.
        registration: The application's record of the tools, which also contains a person's agreement to them.
        definition_chars: Characters of the tools' definitions as JSON, which other clients put into each request.
        kept: The hidden files that preserve edited generated files, and modules with a parser whose tool is gone, by
            their original names.
    """

    def __init__(
        self,
        registration: Registration,
        package: Manifest,
        before: Manifest | None = None,
        *,
        new: bool = False,
        unknown: str = "",
    ):
        """Compares a package with the one that it replaces, if there was one."""
        tools = package.modules
        super().__init__(tools)
        self.registration = registration
        self.server_name = ""
        self.wire_names = dict(zip(tools, map(_TOOL, tools.values()), strict=True))
        self.new = new
        self.unknown = unknown
        self.added = self.removed = self.changed = ()
        if before is not None:
            old = before.modules
            self.added = tuple(name for name in tools if name not in old)
            self.removed = tuple(name for name in old if name not in tools)
            # Without a hash, a tool counts as changed. So does a module that now belongs to another tool.
            same = [(record.meaning, old[name].meaning, name) for name, record in tools.items() if name in old]
            self.changed = tuple(name for said, said_before, name in same if said is None or said != said_before)
        self.definition_chars = 0
        self.kept: dict[str, str] = {}
        self.advice: list[str] = []

    def warnings(self) -> list[str]:
        """Returns a line for each finding that needs attention."""
        lines = [*self.advice]
        if self.unknown:
            lines.append(f"can't tell which tools changed: {self.unknown}")
        for word, names in (("changed", self.changed), ("added", self.added), ("removed", self.removed)):
            if names:
                hint = "" if word == "removed" else " (read before you trust)"
                lines.append(f"{word}: {', '.join(names)}{hint}")
        for name, place in self.kept.items():
            lines.append(f"{name} was edited or its tool was removed; saved as {place}")
        return [*map(printable, lines)]
