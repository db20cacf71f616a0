"""Hand-written YAML as nodes with line numbers: each error names the line and the expected content.

Accepts plain data only. With aliases, a few lines could expand to any number of values.
"""

import math
from collections.abc import Collection, Iterable
from typing import Any, NoReturn, cast

import yaml
from yaml.reader import ReaderError

from ipybox.support.errors import PolicyError
from ipybox.support.printable import printable

#: Maximum bytes of a document.
MAX_SIZE = 64 * 1024
#: Maximum nesting of lists and mappings; PyYAML takes a minute for a few thousand levels.
MAX_DEPTH = 20
#: Maximum values in all lists: each takes memory, and time for each call.
MAX_LISTED = 2000
#: Maximum characters of a string or number.
MAX_TEXT = 500

_MAPPING, _LIST = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"
_TEXT = "tag:yaml.org,2002:str"
_SCALARS = {_TEXT, *(f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool"))}


class PolicyDocument:
    """A parsed YAML file, called `source` in messages. Raises a PolicyError for invalid or unsupported YAML."""

    def __init__(self, text: str, source: str):
        self.text = text
        self.source = source
        self._listed = 0
        if len(text.encode(errors="replace")) > MAX_SIZE:
            raise PolicyError(f"{source} is larger than {MAX_SIZE:,} bytes")
        try:
            self._check(_events(text))
            root = yaml.SafeLoader(text).get_single_node()
        except yaml.MarkedYAMLError as exc:
            mark = exc.problem_mark or exc.context_mark
            what = ", ".join(filter(None, (exc.problem, exc.context)))
            self._fail(0 if mark is None else mark.line, f"not valid YAML: {what}")
        except ReaderError as exc:
            line = text.count("\n", 0, int(exc.position))
            self._fail(line, f"not valid YAML: the character {exc.character:#x} is not allowed")
        if root is None:
            raise PolicyError(f"{source} is empty: write rules into it, or `default: ask`")
        self.root: yaml.Node = root

    def _check(self, events: Iterable[yaml.Event]) -> None:
        depth = 0
        for event in events:
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                self._fail(event.start_mark.line, "YAML aliases are not supported: repeat the value")
            if depth > MAX_DEPTH:
                self._fail(event.start_mark.line, "nested too deeply")

    def end(self, node: yaml.Node) -> int:
        """Returns the index at which the line after a node begins."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1]
            return self.end(last if isinstance(last, yaml.Node) else last[1])
        found = self.text.find("\n", node.end_mark.index - 1)
        return len(self.text) if found < 0 else found + 1

    def fail(self, node: yaml.Node, message: str) -> NoReturn:
        """Raises an error at a node."""
        self._fail(node.start_mark.line, message)

    def mapping(self, node: yaml.Node, what: str, known: Collection[str] | None = None) -> dict[str, yaml.Node]:
        """Returns the values of a mapping by key. The keys must be among the known ones."""
        if not isinstance(node, yaml.MappingNode) or node.tag != _MAPPING:
            keys = "" if known is None else f" with {', '.join(known)}"
            self.fail(node, f"{what} must be a mapping{keys}, not {self.shown(node)}")
        found: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = self.text_of(key_node, "a key")
            if known is not None and key not in known:
                self.fail(key_node, f"unknown key {self.shown(key_node)}: valid keys for {what} are {', '.join(known)}")
            if key in found:
                self.fail(key_node, f"duplicate key {self.shown(key_node)}")
            found[key] = value
        return found

    def items(self, node: yaml.Node | None) -> list[yaml.Node]:
        """Returns the elements of a list, or the node itself if it is not a list; nothing without a node."""
        if not isinstance(node, yaml.SequenceNode) or node.tag != _LIST:
            return [] if node is None else [node]
        if not node.value:
            self.fail(node, "the list is empty")
        self._listed += len(node.value)
        if self._listed > MAX_LISTED:
            self.fail(node, f"more than {MAX_LISTED:,} values in lists")
        return node.value

    def scalar(self, node: yaml.Node, what: str) -> str | int | float | bool:
        """Returns a string, finite number or boolean."""
        value = _constructed(node)
        if value is None:
            kinds = f"a printable string of at most {MAX_TEXT} characters, a finite number, true or false"
            self.fail(node, f"{what} must be {kinds}, not {self.shown(node)}; quote strings that look like other types")
        return value

    def text_of(self, node: yaml.Node, what: str) -> str:
        """Returns a string."""
        value = self.scalar(node, what)
        if not isinstance(value, str):
            self.fail(node, f"{what} must be a string, not {self.shown(node)}: put it in quotes")
        return value

    def shown(self, node: yaml.Node) -> str:
        """Returns a description of a node for messages."""
        if isinstance(node, yaml.ScalarNode):
            value = printable(node.value)
            return repr(value if len(value) <= 60 else f"{value[:60]}…") if value else "nothing"
        return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"

    def plain(self, node: yaml.Node) -> Any:
        """Returns the data of a checked node."""
        return cast(Any, yaml.SafeLoader("")).construct_object(node, deep=True)

    def _fail(self, line: int, message: str) -> NoReturn:
        raise PolicyError(f"{self.source}:{line + 1}: {message}")


def _constructed(node: yaml.Node) -> str | int | float | bool | None:
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _SCALARS or len(node.value) > MAX_TEXT:
        return None
    try:
        value: Any = node.value if node.tag == _TEXT else yaml.safe_load(node.value)
    except (ValueError, ArithmeticError, LookupError, yaml.YAMLError):  # the value does not fit its tag
        return None
    if isinstance(value, str):
        return value if node.tag == _TEXT and value.isprintable() else None
    return value if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else None


def _events(text: str) -> Iterable[yaml.Event]:
    return cast(Iterable[yaml.Event], yaml.parse(text, yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType] untyped
