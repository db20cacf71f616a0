"""The measured data: `benchmarks/economics.json`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict

from benchmarks.economics.tasks import TASKS, WAYS, Way

NAMES = [task.name for task in TASKS]

#: What a request holds because of tools: their definitions; instructions, the skill's line and names of deferred tools;
#: what searches of tools returned; the text of the skill; results; and the calls and the code that the model wrote.
Part = Literal["definitions", "notices", "discovery", "skill", "results", "code"]


#: What a session did: a task by one way, or the registration of the servers, which is needed once.
Done = Way | Literal["registration"]


class Size(NamedTuple):
    """The size of a part."""

    bytes: int
    tokens: int


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Session(_Frozen):
    """A task done by one way, with one number of tools.

    Attributes:
        task: Its name.
        way: How the model got to tools.
        tools: How many tools GitHub's server has.
        requests: What each request holds; each carries all that was there before.
    """

    task: str
    way: Done
    tools: int
    requests: list[dict[Part, Size]]

    @property
    def key(self) -> tuple[str, str, int]:
        """What is measured once."""
        return self.task, self.way, self.tools

    def total(self, part: Part | None = None) -> Size:
        """Returns the sum over all requests, of one part or of all."""
        sizes = [size for request in self.requests for name, size in request.items() if part in (None, name)]
        return _sum(sizes)

    def written(self) -> Size:
        """Returns what the model wrote in order to use tools."""
        return self.requests[-1]["code"]

    def price(self) -> float:
        """Returns what the session costs with a cache for prompts, in input tokens; see `page.PRICES`."""
        totals = [_sum([*request.values()]).tokens for request in self.requests]
        new = [total - before for total, before in zip(totals, [0, *totals], strict=False)]
        return 1.25 * sum(new) + 0.1 * sum(totals[:-1]) + 5 * self.written().tokens


class Economics(_Frozen):
    """All that was measured.

    Attributes:
        client: Name and version of the client.
        tokenizer: Package and version that counted tokens.
        definitions: Where the definitions of tools came from.
        sessions: What was done.
    """

    client: str
    tokenizer: str
    definitions: str
    sessions: list[Session]

    @property
    def counts(self) -> list[int]:
        """The numbers of tools with which all tasks were done by all ways, in their order."""
        done = {session.key for session in self.sessions}
        counts = sorted({session.tools for session in self.sessions})
        return [count for count in counts if {(task, way, count) for task in NAMES for way in WAYS} <= done]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Returns what a file holds."""
        return cls.model_validate_json(path.read_bytes())

    def write(self, path: Path) -> None:
        """Writes a file with one line for each session."""
        head = self.model_dump(exclude={"sessions"})
        lines = ",\n".join(session.model_dump_json() for session in self.sessions)
        path.write_text(json.dumps(head)[:-1] + f', "sessions": [\n{lines}\n]}}\n')

    def add(self, session: Session) -> None:
        """Adds a session, in place of an earlier one of the same task, way and number of tools."""
        self.sessions[:] = [each for each in self.sessions if each.key != session.key] + [session]
        self.sessions.sort(key=lambda each: (each.tools, NAMES.index(each.task)))

    def find(self, task: str, way: str, tools: int) -> Session:
        """Returns one session."""
        (found,) = (each for each in self.sessions if each.key == (task, way, tools))
        return found


def _sum(sizes: Sequence[Size]) -> Size:
    return Size(sum(size.bytes for size in sizes), sum(size.tokens for size in sizes))
