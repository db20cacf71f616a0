"""All readers of what a guest, a workspace, an MCP server, a node or an unauthenticated client sends."""

import ast
import io
import json
import os
import struct
import tarfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp_types import CallToolResult
from prometheus_client.exposition import choose_encoder

from ipybox.audit.notebook.logged import LoggedSessions
from ipybox.audit.redaction import Redactor
from ipybox.cli.clean import size
from ipybox.code_exec.model_output import drawn
from ipybox.codeact.listing import tools
from ipybox.codeact.source import SourceReader, UnreadableError
from ipybox.codeact.suggestion import samples_of
from ipybox.docker.refusal import request_id
from ipybox.guest.cell_check import CellCheckError, check_cell
from ipybox.kernel_mgr import messages as kernel_messages
from ipybox.kernel_mgr.attach.client_messages import encode_frame, request_for_kernel, shown_content
from ipybox.kernel_mgr.display_forms import display_of, plain, split_unfinished, text_of
from ipybox.kernel_mgr.packages.distributions import Installed, find
from ipybox.kernel_mgr.packages.store import _files_of  # pyright: ignore[reportPrivateUsage]
from ipybox.kernel_mgr.transfer.files import Transfer
from ipybox.kernel_mgr.transfer.tar import unpack
from ipybox.mcp_apigen.package.files import render_package
from ipybox.mcp_apigen.package.manifest import Manifest
from ipybox.mcp_apigen.package.merge import _split_after_run_async  # pyright: ignore[reportPrivateUsage]
from ipybox.mcp_client import http_client
from ipybox.mcp_client.answers import hidden_page, hidden_result, tool_result
from ipybox.mcp_client.configs.servers import configured_servers, parse_jsonc
from ipybox.mcp_client.failures import ServerStderr
from ipybox.mcp_client.messages import read_answer, validated
from ipybox.mcp_server.question import Question
from ipybox.mcp_server.stdio import InvalidMessageError, parse_line
from ipybox.remote.wire import protocol as node_protocol
from ipybox.remote.wire.protocol import Ready
from ipybox.sandbox import git_exclude
from ipybox.sandbox.denials import explain_denials
from ipybox.sandbox.policy import SandboxPolicy
from ipybox.sandbox.settings import PROFILES, parse_settings
from ipybox.support import bounded_json
from ipybox.support.child import MAX_LENGTH
from ipybox.support.printable import printable
from ipybox.support.safe_directory import open_directory
from ipybox.support.variables import EncodedVariable, decode
from ipybox.tool_exec.approval.conditions import ToolCall
from ipybox.tool_exec.approval.patterns import MAX_TEXT
from ipybox.tool_exec.approval.policy import ApprovalPolicy, PolicyDecision
from ipybox.tool_exec.approval.request import ApprovalRequest
from ipybox.workspace.env_file import read_env_file
from ipybox.workspace.git_config import configs_with_credentials
from ipybox.workspace.registrations import ToolSpec
from ipybox.workspace.scan import scan
from ipybox.workspace.trust import read_untrusted
from ipybox.workspace.writable import WritablePlaces
from tests.fuzz_readers.reader import Make, Reader

JSON = (
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b",",
    b":",
    b"1",
    b'"a":',
    b"\\ud800",
    b"\\",
    b"-1e9,",
    b'{"a":',
    b"[],",
    b"\n",
    b" ",
)
TEXT = (
    b"\x1b[",
    b"\x1b]",
    b"\r",
    b"\b",
    b"\n",
    b" ",
    b"a",
    b"<",
    b">",
    b"\0",
    "\u202e".encode(),
    b"'",
    b'"',
    b"/",
    b";1m",
)


#: The beginning of metadata, up to a list, and a media type of metrics.
OAUTH = (
    b'{"issuer": "https://a.b", "authorization_endpoint": "https://a.b/c", "token_endpoint": "https://a.b/d", '
    b'"resource": "https://a.b", "authorization_servers": ["https://a.b"], "scopes_supported": ["a", '
)
ACCEPT = b"application/openmetrics-text;version=1.0.0,"

#: A line of an audit log.
LINE = b'{"event": "%b", "session_id": "1", "time": "t", "code": "", "cell_id": "1", "tool_call_id": "%d"}\n'

#: The beginning of a policy, up to the value of an argument.
RULE = b"default: ask\nrules:\n- effect: allow\n  server: x\n  args:\n    a: "

#: Bytes of the largest tree, whose entries count 100 bytes each, and more levels than Python recurses.
TREES = 1 << 17
DEPTH = 1100


def file(name: str) -> Callable[[bytes, Path], Path]:
    """Returns what writes a text to a file of a directory, and returns the directory."""

    def write(text: bytes, root: Path) -> Path:
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text)
        return root

    return write


def json_of(**fields: str) -> dict[str, Make]:
    """Returns JSON objects with fields of any size; `~` stands for the text."""
    return {
        name: lambda size, _, template=template: template.replace("~", "x" * size).encode()
        for name, template in fields.items()
    }


def nested(*names: str, deep: bool = False) -> Make:
    """Returns what makes trees of 100 directories, each in the one before, with files in each; or a deep one."""

    def make(size: int, root: Path) -> Path:
        for number in range(1 if deep else size // 8192):
            (root / str(number)).mkdir()
            fd = os.open(root / str(number), os.O_RDONLY)
            for _ in range(DEPTH if deep else 100):
                for name in names:
                    os.close(os.open(name, os.O_CREAT, dir_fd=fd))
                os.mkdir("d", dir_fd=fd)
                outer, fd = fd, os.open("d", os.O_RDONLY, dir_fd=fd)
                os.close(outer)
            os.close(fd)
        return root

    return make


def many(name: str, content: str = "", each: int = 100) -> Make:
    """Returns what makes a file of this name for each 100 bytes, each in a directory of its own."""

    def make(size: int, root: Path) -> Path:
        for number in range(size // each):
            place = root / f"{number}{name}"
            place.parent.mkdir(parents=True)
            place.write_text(content)
        return root

    return make


def links(size: int, root: Path) -> Path:
    """Makes a chain of links that is named like files which are read, and returns its directory."""
    for number in range(size // 100):
        (root / f"{number}").symlink_to(f"{number + 1}")
    for name in (".env", ".git", "sandbox-config.json", "ipybox.yaml", "mcptools"):
        (root / name).symlink_to("0")
    return root


def leading_out(size: int, root: Path) -> Path:
    """Makes links that are named like categories of saved code actions."""
    (root / "gentools").mkdir()
    for number in range(size // 16):
        (root / "gentools" / f"c{number}").symlink_to("/")
    return root


def repositories(size: int, root: Path) -> Path:
    """Makes a repository with many modules, and as many files that name it."""
    for number in range(size // 400):
        (root / "all" / "modules" / str(number)).mkdir(parents=True)
        (root / f"{number}").mkdir()
        (root / f"{number}" / ".git").write_text("gitdir: ../all")
    return root


def environments(size: int, root: Path) -> Path:
    """Makes a configuration of servers that all have the same large environment."""
    file(".env")(b"".join(b"A%d=b\n" % number for number in range(size // 10)), root)
    servers = (f"[mcp_servers.a{number}]\ncommand='x'\nenvFile='.env'\n" for number in range(size // 50))
    return file(".codex/config.toml")("".join(servers).encode(), root)


def scanned(root: Path) -> None:
    """Searches a workspace as a start of a sandbox does, and all that it would read of it."""
    scan(root, ["**/.env*", "**/x*y*z"], [], [str(root)])


def opened(root: Path) -> None:
    """Has a start read what names files of a workspace."""
    from ipybox.sandbox.settings import sandbox_settings
    from ipybox.workspace.trust import TrustStore

    scanned(root)
    read_env_file(root)
    for read in (
        lambda: sandbox_settings(TrustStore(root), discover=True),
        lambda: ApprovalPolicy.load(root / "ipybox.yaml", root),
        lambda: SandboxPolicy(PROFILES["default"], root).read_denial(f"{root}/0"),
        lambda: read_untrusted(root / ".env", root),
        lambda: SourceReader(root).entries("mcptools"),
    ):
        with suppress(*Reader.errors, UnreadableError):
            read()


def excluded(root: Path) -> None:
    """Lists a name, as a start of a sandbox does, and removes it."""
    with (root / "lock").open("w") as lock, suppress(git_exclude.ExcludeError):
        git_exclude.update(str(root), {"x"}, {"x"}, "key", lock.fileno())
        git_exclude.update(str(root), None, {"x"}, "key", lock.fileno())


def params(fields: bytes, before: bytes = b"") -> bytes:
    """Returns the module of a tool with these fields."""
    return before + b"class Params:\n" + fields + b"def run(params): ...\n"


def repository(text: bytes, root: Path) -> Path:
    """Makes a repository with this list of ignored files, and this configuration of the one that a file names."""
    for name in ("objects", "refs", "info"):
        (root / ".git" / name).mkdir(parents=True)
    (root / ".git" / "HEAD").touch()
    (root / ".git" / "info" / "exclude").write_bytes(text)
    return root


def denied(text: bytes) -> None:
    """Explains output of a cell, in a workspace with the default settings."""
    explain_denials(text.decode(errors="replace"), HIDDEN)


HIDDEN = SandboxPolicy(PROFILES["default"], Path("/tmp/w"))


def message(content: bytes) -> bytes:
    """Returns a message of a kernel."""
    parts = [b"iopub", b'{"msg_id": "1", "msg_type": "display_data"}', b"{}", b"{}", content]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(parts)


def shown(data: bytes) -> None:
    """Reads a message of a kernel, and makes of it what clients and people see."""
    found = kernel_messages.decode(data)
    for confined in (True, False):
        encode_frame("iopub", {}, {}, shown_content(found, confined=confined) or {})
    text_of(display_of(found.content))


def parsed_by_value(data: bytes) -> None:
    """Parses JSON as if it contained many values."""
    with patch.object(bounded_json, "MANY_VALUES", -1):
        bounded_json.loads(data.decode(errors="replace"))


def texts(data: bytes) -> None:
    """Makes output safe to show."""
    text = data.decode(errors="surrogateescape")
    for part in (plain(text, stream=True), drawn(text), printable(text), *split_unfinished(text)):
        assert isinstance(part, str)


def packed(size: int, _: Path, *, name: str = "f") -> bytes:
    """Returns a tar of many empty files."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for number in range(size // 1024):
            archive.addfile(tarfile.TarInfo(f"{name}{number}"))
    return written.getvalue()


def extended(header: bytes) -> bytes:
    """Returns a tar of one empty file with this extended header."""
    about = tarfile.TarInfo("f")
    about.type, about.size = tarfile.XHDTYPE, len(header)
    padded = header + b"\0" * (-len(header) % tarfile.BLOCKSIZE)
    return about.tobuf(tarfile.USTAR_FORMAT) + padded + tarfile.TarInfo("f").tobuf() + bytes(2 * tarfile.BLOCKSIZE)


def tool(description: str, schema: Any) -> dict[str, Any]:
    """Returns a tool."""
    return {"name": "t", "description": description, "inputSchema": {"type": "object", **schema}}


def registered(text: bytes) -> None:
    """Repairs a tool list, and generates a package."""
    described = text.decode(errors="replace")
    schema = {"properties": {"a": {"type": "string", "description": described, "pattern": described[:2000]}}}
    page = hidden_page({"tools": [tool(described, schema)]}, "2025-06-18")
    ((listed, _),) = page["_meta"].popitem()[1].value
    specs = [ToolSpec(listed.name, listed.description, listed.input_schema)]
    render_package("s", {"command": "x"}, specs, "seal")


def listed(size: int, _: Path) -> bytes:
    """Returns a list of many tools."""
    return json.dumps({"tools": [{**tool("x", {}), "name": f"t{number}"} for number in range(size // 100)]}).encode()


def listed_with(**parts: Any) -> bytes:
    """Returns a list of one tool with these parts."""
    return json.dumps({"tools": [{"name": "t", **parts}]}).encode()


def numbered(size: int, value: Any) -> dict[str, Any]:
    """Returns many members with one value."""
    return {str(number): value for number in range(size // 12)}


def decided(given: tuple[str, list[str]]) -> None:
    """Decides on a call with these elements of a list by a rule with these conditions."""
    conditions, elements = given
    ApprovalPolicy(f"rules:\n- effect: deny\n  args:\n{conditions}").decide("x", "t", {"a": elements})


def globs(size: int, _: Path) -> tuple[str, list[str]]:
    """Returns a condition with many globs, and paths."""
    return f"    a[]: {{path: [{','.join(f'/{number}*' for number in range(size // 17))}]}}\n", [
        "/tmp/a",
        "/tmp/b",
    ] * 15


def patterns(size: int, _: Path) -> tuple[str, list[str]]:
    """Returns a condition on each of many texts, with a costly pattern, and these texts."""
    return "    a[]: {pattern: '(\\w| ){60}0'}\n", ["é" * MAX_TEXT] * (size // 400)


def checked(source: bytes) -> None:
    """Checks the tool calls of a cell."""
    text = source.decode()
    check_cell(ast.parse(text), text, {})


def loops(size: int, _: Path) -> bytes:
    """Returns nested loops around calls."""
    head = "".join(f"{' ' * depth}for a in b:\n" for depth in range(90))
    return f"{head}{' ' * 90}Params({'a,' * (size // 2)})\n".encode()


def asked(calls: Sequence[dict[str, Any]]) -> None:
    """Writes what people see of calls."""
    redactor = Redactor()
    redactor.add_secrets({f"S{number}": f"a-secret-of-a-server-{number}" for number in range(20)})
    decisions = [
        PolicyDecision("ask", ToolCall("s", "t", each, ()), "no rule", can_be_remembered=True) for each in calls
    ]
    for kind in ("tool", "shell") if isinstance(calls[0].get("cmd"), str) else ("tool",):
        question = Question(decisions, ApprovalPolicy(), redactor, kind=kind)
        question.form()
        question.whole()
        str(ApprovalRequest("s", "t", {}, None, kind=kind, calls=calls))


def nothing(size: int, _: Path) -> list[dict[str, Any]]:
    """Returns calls without arguments."""
    return [{} for _ in range(size // 3)]


def one(value: Callable[[int], Any]) -> Make:
    """Returns what makes the arguments of one call, with a value of a size."""
    return lambda size, _: [{"cmd": value(size)}]


def alike(size: int) -> list[str]:
    """Returns names of properties that become the same name in Python."""
    return ["a" + f"{number:b}".translate({ord("0"): "!", ord("1"): "?"}) for number in range(size // 20)]


def alternatives(schemas: list[Any]) -> Any:
    """Returns one schema, which nests alternatives."""
    while len(schemas) > 1:
        schemas = [{"anyOf": schemas[start : start + 40]} for start in range(0, len(schemas), 40)]
    return schemas[0]


def references(size: int, schema: Any) -> Any:
    """Returns properties that all have one schema."""
    return {"d": schema, "properties": numbered(size // 3, {"$ref": "#/d"})}


def words(size: int) -> list[str]:
    """Returns words of letters only."""
    return [
        "Word" + f"{number:o}".translate({ord("0") + each: ord("a") + each for each in range(8)})
        for number in range(size)
    ]


def keys(size: int, _: Path) -> bytes:
    """Returns an object with many keys."""
    return json.dumps(numbered(size, 1)).encode()


def result(data: bytes) -> None:
    """Reads the result of a tool."""
    for message in read_answer(data, 1):
        if "result" in message:
            tool_result(CallToolResult.model_validate(hidden_result(message["result"]), by_name=False))


def stderr(data: bytes) -> None:
    """Reads what a server wrote to stderr."""
    lines = ServerStderr(lambda _: None)
    for line in printable(data.decode(errors="replace"), lines=True).split("\n"):
        lines._receive(line[:MAX_LENGTH])  # pyright: ignore[reportPrivateUsage]


def record(root: Path) -> None:
    """Reads the metadata and files of installed packages."""
    for found in find(root).values():
        list(found.requires())
    list(_files_of(Installed("a", "1", root / "a-1.dist-info", {})))


def logged(root: Path) -> None:
    """Reads an audit log."""
    with (root / "log").open("rb") as log:
        sessions = LoggedSessions([log])
        for session in sessions.latest():
            sessions.notebook(session)


READERS: dict[str, Reader] = {
    "servers of other clients": Reader(
        ["mcp_client/configs/servers"],
        lambda root: configured_servers(root, WritablePlaces(root)),
        (b"[mcp_servers.a]\n", b"a.", b"a=1\n", b'a="', b"'''", b"[", b"{", b"\n", b'command="${A:-"\n', b"$A"),
        file(".codex/config.toml"),
        inputs={
            "query": lambda size, _: b"[mcp_servers.a]\nurl='https://a.b/?" + b"a=1&" * (size // 4) + b"'",
            "long name": lambda size, _: (
                b"[mcp_servers.%s]\nurl='https://a.b/?" % (b"a" * (size // 2)) + b"a=1&" * (size // 8) + b"'"
            ),
            "environments": environments,
        },
        largest=1 << 15,
    ),
    "JSON with comments": Reader(
        ["mcp_client/configs/servers:parse_jsonc"],
        parse_jsonc,
        (b'"', b"\\", b"/*", b"*/", b"//", b"\n", b"*", b"/", b",", b" ", b"]", b"}", b"[", b'{"a":', b"1"),
    ),
    "env file": Reader(
        ["workspace/env_file"],
        read_env_file,
        (
            b"A=",
            b"${A}",
            b"'",
            b'"',
            b"\\",
            b"#",
            b" ",
            b"\n",
            b"export ",
            b"${",
            b":-",
            b"}",
            b"B=${A}${A}\n",
            b"=",
            b"x",
        ),
        file(".env"),
    ),
    "git config": Reader(
        ["workspace/git_config", "support/untrusted_paths:beginning"],
        lambda root: list(configs_with_credentials(str(root / ".git"))),
        (
            b"://",
            b":",
            b"@",
            b"[credential",
            b"token",
            b"password",
            b"=",
            b"\t",
            b"https://x",
            b"-",
            b"\n",
            b" ",
            b"]",
            b'"',
        ),
        file(".git/config"),
    ),
    "git file": Reader(
        ["sandbox/git_exclude:_opened"],
        lambda root: (scanned(root), excluded(root)),
        (b"gitdir: ", b"a/", b"../", b"/", b"\0", b"\n", b" ", b".git/", b"\xff"),
        file(".git"),
    ),
    "git exclude": Reader(
        ["sandbox/git_exclude:_content"],
        excluded,
        (b"# ipybox key: names that a running sandbox keeps taken", b"# ipybox key: end", b"\n", b"/x", b" ", b"\\"),
        repository,
    ),
    "workspace": Reader(
        ["workspace/scan", "support/untrusted_paths:walk"],
        scanned,
        inputs={
            "deep secrets": nested(".env", deep=True),
            "nested secrets": nested(".env"),
            "nested names that are no text": nested(".env\udcff"),
            "many secrets": many("/.env"),
            "many names that are no text": many("/\udcff/.env"),
            "many repositories": many("/.git/config", "[credential]\n"),
            "one repository of many files": repositories,
        },
        largest=TREES,
    ),
    "links": Reader(
        ["workspace/trust:read_untrusted", "codeact/source:SourceReader.entries"],
        opened,
        inputs={"chain": links},
        largest=4 * TREES,
    ),
    "trees": Reader(
        ["cli/clean", "support/safe_directory:Directory.names"],
        lambda root: (size(root), remove_all(root)),
        inputs={"deep": nested("f", deep=True), "nested": nested("f"), "many": many("/f")},
        largest=TREES,
        once=True,
    ),
    "settings": Reader(
        ["sandbox/settings:parse_settings"],
        lambda data: parse_settings(data, Path("x.json"), PROFILES["default"]),
        JSON,
        inputs=json_of(
            host='{"network": {"allowedDomains": ["~"]}}', path='{"filesystem": {"denyRead": ["~"]}}', key='{"~": 1}'
        )
        | {"keys": keys},
        largest=1 << 16,
    ),
    "policy": Reader(
        ["tool_exec/approval/document", "tool_exec/approval/policy:ApprovalPolicy.__init__"],
        lambda data: ApprovalPolicy(data.decode(errors="replace"), Path("/tmp")),
        (
            b"default: ask\n",
            b"rules:\n",
            b"- effect: deny\n  server: x\n",
            b"&a ",
            b"*a,",
            b"[",
            b"{",
            b"? ",
            b"- ",
            b"\n",
            b" ",
            b"!!",
            b"|\n",
        ),
        inputs={
            "sexagesimal": lambda size, _: RULE + b"1" + b":1" * (size // 2),
            "no float": lambda size, _: RULE + b"1" + b":1" * 200 + b".0" + b" " * size,
            "hexadecimal": lambda size, _: RULE + b"0x" + b"f" * size,
        },
        largest=1 << 15,
    ),
    "call": Reader([], decided, inputs={"globs": globs, "patterns": patterns}, largest=1 << 15),
    "cell": Reader(
        [],
        checked,
        inputs={
            "statements before a call": lambda size, _: b"x\n" * (size // 2) + b"Params()\n",
            "calls": lambda size, _: b"Params()\n" * (size // 9),
            "nested loops": loops,
            "names": lambda size, _: b"from mcptools import " + b"a," * (size // 2) + b"a\n",
        },
        largest=90_000,
        errors=(CellCheckError,),
    ),
    "question about calls": Reader(
        ["mcp_server/shown_call"],
        asked,
        inputs={
            **{
                repr(unit): one(lambda size, unit=unit: unit * (size // len(unit)))
                for unit in ("a", "\n", " ", "\x1b", "\u202e", "\u4e00", "a-secret-of-a-server-7", "'\\\"")
            },
            "numbers": one(lambda size: [1] * (size // 2)),
            "deep": one(lambda size: [[[[{"": [{}] * (size // 4)}]]]]),
            "names": lambda size, _: [numbered(size, 1)],
            "strange names": lambda size, _: [{f"\x1b{number}": "\n" for number in range(size // 12)}],
            "calls with nothing": nothing,
            "calls alike": lambda size, _: [{"a": "b"}] * (size // 10),
            "calls": lambda size, _: [{"a": number} for number in range(size // 10)],
            "exceptions": lambda size, _: [
                {"a": number % 9 == 0, "b": [number % 7 == 0]} for number in range(size // 20)
            ],
            "names of each call": lambda size, _: [{str(number): "\n"} for number in range(size // 12)],
            "names like others": lambda size, _: [{"a": {f"\u0430{number}": "\u0430"}} for number in range(size // 20)],
            "a name like another": lambda size, _: [{"a": {"\u0430a" * (size // 3): 1}}],
            "members": lambda size, _: [{"a": {"b": [number, {"c": 1}]}} for number in range(size // 30)],
        },
        errors=(),
    ),
    "manifest": Reader(
        ["mcp_apigen/package/manifest:Manifest.parse"],
        Manifest.parse,
        JSON,
        inputs=json_of(name='{"server": "~", "modules": {"~": {}}, "files": {"~": "~"}}'),
    ),
    "generated module": Reader(
        ["mcp_apigen/package/merge", "codeact/source"],
        lambda root: (_split_after_run_async((root / "m.py").read_bytes()), SourceReader(root).module("m.py")),
        (b"(", b"[", b"-", b"a=1\n", b"def f():\n", b" ", b"\n", b"'", b'"""', b"\\", b"1", b"f'{", b"x.", b"\0", b"#"),
        file("m.py"),
        largest=1 << 16,  # Python's parser takes quadratic time for some; a file has at most four times as much
        errors=(*Reader.errors, UnreadableError),
    ),
    "tools of a workspace": Reader(
        [],
        lambda root: tools("x", "s.t", workspace=root),
        (),
        file("mcptools/s/t.py"),
        inputs={
            "choice of many fields": lambda size, _: params(
                b" a: C\n" * (size // 12), b"C = Choice('C', '" + b"a" * (size // 2) + b"')\n"
            ),
            "choice of one field": lambda size, _: params(
                b" a: (" + b"C," * (size // 4) + b")\n", b"C = Choice('C', '" + b"a" * (size // 2) + b"')\n"
            ),
            "fields on a line": lambda size, _: params(b" a: b" + b"; a: b" * (size // 6) + b"\n"),
            "nested literals": lambda size, _: params(
                b" a: " + b"Literal[" * 90 + b"'', " * (size // 4) + b"]" * 90 + b"\n"
            ),
            "docstring": lambda size, _: params(b" a: b\n", b'"""' + b"pr " * (size // 3) + b'"""\n'),
            "links": leading_out,
        },
    ),
    "samples": Reader(
        ["codeact/suggestion:_decoded_text"],
        lambda data: samples_of([data.decode(errors="replace")]),
        (*JSON, b"(", b"-", b"'", b"None,"),
    ),
    "audit log": Reader(
        ["audit/notebook/logged"],
        logged,
        (
            *JSON,
            b'{"event": "cell", "session_id": "1", "time": "t", "code": "1", "cell_id": "1"}\n',
        ),
        file("log"),
        inputs={
            "cells with the same calls": lambda size, _: b"".join(
                LINE % (b"decision", number) + LINE % (b"cell", number) for number in range(size // 170)
            )
        },
    ),
    "installed packages": Reader(
        ["kernel_mgr/packages/distributions", "kernel_mgr/packages/store:_files_of"],
        record,
        (
            b"Name: a\n",
            b"Version: 1\n",
            b"Requires-Dist: b\n",
            b"Requires-Dist: b[",
            b"(",
            b"and ",
            b"'x' in extra ",
            b"; 'x' in 'y'\n",
            b",",
            b".",
            b'"',
        ),
        lambda text, root: (
            file("a-1.dist-info/METADATA")(b"Name: a\nVersion: 1\n" + text, root),
            file("a-1.dist-info/RECORD")(text, root),
        )[1],
    ),
    "message of a kernel": Reader(
        ["kernel_mgr/messages", "kernel_mgr/kernel_channels:KernelChannels._dispatch"],
        shown,
        JSON,
        lambda text, _: message(text),
        inputs={
            "text": lambda size, _: json.dumps({"data": {"text/plain": "<" + " at 0x1" * (size // 7)}}).encode(),
            "html": lambda size, _: json.dumps({"data": {"text/html": "<script></script" * (size // 16)}}).encode(),
            "forms": lambda size, _: json.dumps({"data": numbered(size, "")}).encode(),
            "pages": lambda size, _: json.dumps({"payload": [{"source": "page", "data": {}}] * (size // 32)}).encode(),
        },
    ),
    "JSON of many values": Reader(
        ["support/bounded_json:loads"],
        parsed_by_value,
        JSON,
        inputs={"long numbers": lambda size, _: b"[" + (b"9" * 4300 + b",") * (size // 4301) + b"0]"},
        errors=(*Reader.errors, RecursionError),
    ),
    "variable": Reader(["support/variables:decode"], lambda data: decode(EncodedVariable("x", "json", data)), JSON),
    "output": Reader([], texts, TEXT),
    "denials": Reader(
        [],
        denied,
        (
            b"Permission denied",
            b": ",
            b"'",
            b"/tmp/w/",
            b"a/" * 40,
            b"\n",
            b"http://",
            b"connect to ",
            b"a@",
            b"resolve host ",
            b" ",
            b"x",
            b"127.",
            b"lookup ",
            b"connection refused",
            b"Read-only file system",
        ),
    ),
    "redaction": Reader(
        [],
        lambda data: Redactor().text(data.decode(errors="replace"), len(data)),
        (
            b"password",
            b"=",
            b":",
            b"'",
            b'"',
            b"\\",
            b"://",
            b"@",
            b"Bearer ",
            b"sk-",
            b"eyJ",
            b".",
            b"-",
            b"a1",
            b" ",
            b"?token=",
            b"-----BEGIN PRIVATE KEY-----",
            b"\\n",
            b"A" * 40,
        ),
        largest=1 << 14,
    ),
    "tar": Reader(
        [
            "kernel_mgr/transfer/file_transfer:FileTransfer._put",
            "kernel_mgr/transfer/tar:unpack",
            "kernel_mgr/transfer/tar:_Member",
        ],
        lambda data: list(unpack(data, Transfer(), lambda _: None)),
        (b"\0", b"ustar", b"0", b"7" * 11 + b"\0"),
        inputs={
            "files": packed,
            "deep": lambda size, root: packed(size, root, name="a/" * 40),
            "overlapping records": lambda size, _: extended(b"2 " * (size // 2) + b"=a\n"),
            "digits": lambda size, _: extended(b"1" * size),
            "records": lambda size, _: extended(b"11 %06d=\n" * (size // 11) % (*range(size // 11),)),
        },
    ),
    "MCP message": Reader(
        ["mcp_client/messages"],
        lambda data: [*map(validated, read_answer(data, 1))],
        (*JSON, b'{"jsonrpc": "2.0", "id": 1, "result": ', b'"id": 1, ', b'{"method": "x", "id": "', b"\r"),
    ),
    "document of an authorization server": Reader(
        [],
        lambda data: [model.model_validate_json(data) for model in (OAuthMetadata, ProtectedResourceMetadata)],
        JSON,
        lambda text, _: OAUTH + text + b"0]}",
        inputs={"lifetime": lambda size, _: OAUTH + b'0], "expires_in": ' + b"9" * size + b"}"},
    ),
    "Accept header": Reader(
        [],
        lambda data: choose_encoder(data.decode(errors="replace")),
        (b",", b";", b"q=0.", b"version=", b"a/b", b" ", ACCEPT),
    ),
    "MCP result": Reader(
        [],
        result,
        JSON,
        lambda text, _: b'{"jsonrpc": "2.0", "id": 1, "result": {"content": [' + text + b"0]}}",
    ),
    "page of an HTTP error": Reader(
        ["mcp_client/http_client:_reason"],
        http_client._reason,  # pyright: ignore[reportPrivateUsage]
        (*JSON, b"<", b">", b"<title", b"<script", b"&", b"&#", b"9", b";", b"x"),
        inputs={"reference": lambda size, _: b"<&#" + b"9" * size},
        errors=(),
    ),
    "event of a remote MCP server": Reader(
        ["mcp_client/http_client:MCPHTTPClient._read_event"],
        lambda data: http_client.Event(data).encoded(),
        (b"data:", b"id", b"retry:", b"0", b"event:", b":", b" ", b"\n", b"\r", b"x", b"\xef\xbb\xbf"),
    ),
    "MCP tool": Reader(
        ["mcp_apigen/package/files:_model"],
        registered,
        (
            b",",
            b";",
            b" the",
            b". ",
            b"(",
            b")",
            b"- ",
            b"\n",
            b" ",
            b"\r",
            b'"""',
            b"\\",
            b"e.g",
            b"*",
            b"a",
            b"[",
            b"{1,9}",
            b"`",
            b"<",
        ),
    ),
    "schema of an MCP tool": Reader(
        [],
        lambda schema: render_package("s", {"command": "x"}, [ToolSpec("t", None, {"type": "object"} | schema)], ""),
        inputs={
            "names alike": lambda size, _: {"properties": dict.fromkeys(alike(size), True)},
            "required names alike": lambda size, _: {"required": alike(size)},
            "words": lambda size, _: {
                "properties": {each: {"description": "another " * 5} for each in words(size // 60)}
            },
            "patterns": lambda size, _: {
                "properties": {each: {"type": "string", "pattern": rf"\w{{9}}{each}"} for each in words(size // 60)}
            },
            "parts that require": lambda size, _: {"allOf": [{"required": [each]} for each in words(size // 30)]},
            "alternatives of alternatives": lambda size, _: {
                "properties": {"a": alternatives([{"const": number} for number in range(size // 20)])}
            },
            "alternatives with names": lambda size, _: {
                "properties": {"a" * (size // 2): alternatives([{"enum": ["a", "b"]}] * (size // 60))}
            },
            "references to constants": lambda size, _: references(size, {"enum": [1, "a" * (size // 2)]}),
            "references to a description": lambda size, _: references(size, {"description": "a " * (size // 4)}),
            "references to many types": lambda size, _: references(size, {"type": ["string"] * (size // 20)}),
            "references to parts without one": lambda size, _: references(
                size, {"allOf": [*[{}] * (size // 8), {"$ref": "https://a.b"}]}
            ),
            "alternatives of many properties": lambda size, _: {
                "d": {"properties": numbered(size // 2, {})},
                "anyOf": [{"$ref": "#/d"}] * (size // 40),
            },
            "parts that list": lambda size, _: {"allOf": [{"properties": {"a": {"enum": words(size // 30)}}}] * 2},
        },
    ),
    "MCP tools": Reader(
        [],
        lambda data: hidden_page(json.loads(data), "2026-07-28"),
        inputs={
            "many": listed,
            "properties": lambda size, _: listed_with(inputSchema={"properties": numbered(size, {})}),
            "wrong properties": lambda size, _: listed_with(inputSchema={"properties": numbered(size, [])}),
            "wrong results": lambda size, _: listed_with(outputSchema={"properties": numbered(size, 1)}),
            "required": lambda size, _: listed_with(inputSchema={"required": [1] * (size // 3)}),
            "icons": lambda size, _: listed_with(icons=[{"sizes": [1] * (size // 3)}]),
            "metadata": lambda size, _: listed_with(title=1, _meta=numbered(size, {})),
        },
    ),
    "stderr of a server": Reader(
        ["support/child:StderrLines._read"],
        stderr,
        (
            b"npm http fetch ",
            b"GET ",
            b"a@",
            b"http://",
            b" ",
            b"1",
            b"ms",
            b'  File "',
            b'", line ',
            b"|",
            b"    at ",
            b":1",
            b"\n",
        ),
    ),
    "message of a node": Reader(
        ["remote/wire/protocol:_parsed"],
        lambda data: node_protocol._parsed(data, Ready),  # pyright: ignore[reportPrivateUsage]
        JSON,
        inputs={"names": keys},
        errors=(*Reader.errors, node_protocol.InvalidMessageError, node_protocol.RefusedError),
    ),
    "line of an MCP client": Reader(
        ["mcp_server/stdio", "docker/refusal:request_id"],
        lambda data: (request_id(data), parse_line(data)),
        (*JSON, b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": '),
        errors=(*Reader.errors, InvalidMessageError),
    ),
    "frame of a joined client": Reader(
        ["kernel_mgr/attach/client_messages"], lambda data: request_for_kernel(data.decode(errors="replace")), JSON
    ),
}


def remove_all(root: Path) -> None:
    """Removes what is in a directory."""
    with open_directory(root) as directory:
        for name in directory.names():
            directory.remove(name)
