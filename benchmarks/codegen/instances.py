"""Arguments for a tool, valid by its schema, by which the way from `Params` to the wire is checked."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ipybox.mcp_apigen.package.files import ToolSpec
from ipybox.mcp_apigen.schema.values import mapping
from tests.mcp_apigen.instances import Instances

#: Instances per tool: enough for each property to be in one, and absent from one if it may be.
COUNT = 20


@dataclass(frozen=True)
class Sample:
    """Instances of a tool's schema, and the properties that it names."""

    values: list[dict[str, Any]]
    named: list[str]

    @property
    def untried(self) -> list[str]:
        """Properties that no instance has: no value was found for them."""
        tried = {name for value in self.values for name in value}
        return [name for name in self.named if name not in tried]


def sample(tool: ToolSpec) -> Sample:
    """Instances that are the same at every call."""
    values: list[dict[str, Any]] = []
    with suppress(Exception):  # a corpus may hold anything, and what was not tried is reported
        values += Instances(tool.input_schema, tool.name).valid(COUNT)
    properties = mapping(mapping(tool.input_schema).get("properties"))
    return Sample(values, [name for name, schema in properties.items() if schema is not False])
