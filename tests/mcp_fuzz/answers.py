"""What must come of messages: an answer to each request, and nothing that is nobody's business."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.mcp_fuzz.messages import Message

#: An id, with its type, as 1 and "1" are different.
Id = tuple[type, Any]

#: Of Python: what IPython shows of the code of a cell has no file.
_TRACES = re.compile(r'Traceback \(most recent call last\):|File ".*", line \d|0x[0-9a-f]{8,}>')


class Requests:
    """The requests that were sent, and their answers.

    Those that must be answered are the ones that all parsers take for requests. Others may be: only once each. The
    same goes for those that were cancelled, and those that go on for as long as the client likes.
    """

    def __init__(self) -> None:
        self._must: Counter[Id] = Counter()
        self._may: Counter[Id] = Counter()
        self._answered: Counter[Id] = Counter()

    def sent(self, messages: Iterable[Message]) -> None:
        """Takes down what is being sent."""
        cancelled: set[str] = set()
        for message in messages:
            for tree in _objects(message.data):
                if (asked := _id(tree)) is not None:
                    must = message.framed and _is_request(tree)
                    (self._must if must else self._may)[asked] += 1
                match tree:
                    case {"method": "notifications/cancelled", "params": {"requestId": gone}}:
                        cancelled.add(str(gone))
                    case _:
                        pass
        for asked in [one for one in self._must if str(one[1]) in cancelled]:
            self._may[asked] += self._must.pop(asked)

    def answered(self, answer: dict[str, Any]) -> None:
        """Takes down an answer."""
        assert answer.get("jsonrpc") == "2.0"
        if "method" in answer:
            assert "id" not in answer, f"the server asks although nobody waits: {answer}"
            return
        assert ("result" in answer) != ("error" in answer)
        assert not _is_surprise(answer), f"an exception that nobody has foreseen: {answer}"
        asked = _id(answer)
        if asked is None:
            assert "error" in answer, f"a result for nobody: {answer}"
            return
        self._answered[asked] += 1
        most = self._must[asked] + self._may[asked]
        assert self._answered[asked] <= most, f"{self._answered[asked]} answers for {most} requests: {answer}"

    @property
    def unanswered(self) -> set[Id]:
        """The ids of requests that have too few answers."""
        return {asked for asked, count in self._must.items() if self._answered[asked] < count}


class Secrets:
    """What must not be in anything that the server says."""

    def __init__(self, *secrets: object):
        self._secrets = [str(secret) for secret in secrets]

    def check(self, said: str) -> None:
        """Fails if one of them is."""
        found = [secret for secret in self._secrets if secret in said]
        assert not found, f"{found} in {said[:2000]}"
        trace = _TRACES.search(said)
        assert trace is None, f"{trace} in {said[:2000]}"


def parsed(line: bytes) -> dict[str, Any]:
    """Returns an answer; strictly, as NaN is no JSON."""
    return json.loads(line, parse_constant=_refuse)


def _is_surprise(answer: dict[str, Any]) -> bool:
    """Tells whether an answer is what the SDK makes of exceptions that it doesn't know."""
    match answer:
        case {"error": {"code": 0 | -32603}}:
            return True
        case {"result": {"content": [{"text": str(text)}]}}:
            return re.fullmatch(r"Error executing tool \w+", text) is not None
        case _:
            return False


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _objects(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in [data, *data.split(b"\n")] if b"\n" in data else [data]:
        try:
            tree = json.loads(line)
        except (ValueError, RecursionError):
            continue
        match tree:
            case {**members}:
                found.append(members)
            case _:
                pass
    return found


def _id(tree: dict[str, Any]) -> Id | None:
    value = tree.get("id")
    return (type(value), value) if isinstance(value, str) or type(value) is int else None


def _is_request(tree: dict[str, Any]) -> bool:
    return "method" in tree and not tree.keys() & {"result", "error"} and tree["method"] != "subscriptions/listen"
