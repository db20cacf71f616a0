"""The tool port bears whatever a kernel sends there."""

import os

import pytest

from ipybox.tool_exec.http_api import MAX_CONNECTIONS
from tests.security import guests
from tests.security.boundary.heart import LARGE, Heart
from tests.security.boundary.sides import Side
from tests.security.conftest import Row

pytestmark = pytest.mark.asyncio(loop_scope="module")

PORT_AREA = "the tool port"
MANY = """
import concurrent.futures
def each(count, action):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(action, range(count)))
"""
HONEST_BODY = """
entry = guests.registered()["scripted"]
body = json.dumps({"server_name": "scripted", "server_params": entry["params"], "seal": entry["seal"],
                   "tool_name": "echo", "tool_args": {"text": ""}})
"""
PORT_ATTACKS: dict[str, str] = {
    "a head of 100 MiB": "guests.raw(guests.head(X='a')[:-2] + b'Y: ' + b'a' * (100 << 20))",
    "a million header lines": "guests.raw(guests.head()[:-2] + b'A: b\\r\\n' * 1_000_000)",
    "a request line of 100 MiB": "guests.raw(b'GET /' + b'a' * (100 << 20))",
    "a chunked body without end": "guests.raw(guests.head(Transfer_Encoding='chunked'),"
    " *[b'100000\\r\\n' + bytes(1 << 20) + b'\\r\\n'] * 400)",
    "chunks of one byte": "guests.raw(guests.head(Transfer_Encoding='chunked'),"
    " b'1\\r\\na\\r\\n' * 500_000 + b'0\\r\\n\\r\\n')",
    "a chunk extension without end": "guests.raw(guests.head(Transfer_Encoding='chunked'),"
    " b'1;' + b'a' * (20 << 20) + b'\\r\\na\\r\\n0\\r\\n\\r\\n')",
    "a body of 1 GiB": "guests.raw(guests.head(Content_Length=str(1 << 30)), *[bytes(1 << 20)] * 200)",
    "bodies of 60 MiB, 8 at once": MANY + "each(8, lambda _: guests.post(b' ' * (60 << 20)))",
    "calls of 8 MiB, 12 at once": MANY + HONEST_BODY + "body = body[:-3].encode() + b'x' * (8 << 20) + b'\"}}'\n"
    "each(12, lambda _: guests.post(body))",
    "1,000 calls in each of 4 batches": MANY
    + HONEST_BODY
    + "many = {**json.loads(body), 'params_list': [{}] * 1000, 'concurrency': 64, 'output_mark': 0}\n"
    "many = json.dumps(many).encode()\n"
    "run_many = guests.head('POST', '/run_many', Content_Length=str(len(many)))\n"
    "each(4, lambda _: guests.raw(run_many, many))",
    "large bodies that never arrive": "kept = [guests.connect() for _ in range(50)]\n"
    "for each in kept: each.sendall(guests.head(Content_Length=str(60 << 20)) + b'{')",
    "a content length of 1 GiB and no body": "kept = [guests.connect() for _ in range(50)]\n"
    "for each in kept: each.sendall(guests.head(Content_Length=str(1 << 30)))",
    "a content length beyond all numbers": "guests.raw(guests.head(Content_Length='9' * 5000), b'{}')",
    "a negative content length": "guests.raw(guests.head(Content_Length='-1'), b'{}')",
    "JSON that is nested ten million times": "guests.post(b'[' * 10_000_000)",
    "JSON of nearly three million empty lists, 4 at once": MANY
    + "each(4, lambda _: guests.post(b'[' + b'[],' * 1_490_000 + b'[]]'))",
    "JSON of ten million empty lists": "guests.post(b'[' + b'[],' * 10_000_000 + b'[]]')",
    "JSON with numbers of ten million digits": "guests.post(b'[' + b'9' * 10_000_000 + b']')",
    "JSON with a fraction of ten million digits": "guests.post(b'[0.' + b'9' * 10_000_000 + b']')",
    "text that is no UTF-8": "guests.post(bytes(range(256)) * 1000)",
    "a character set that is slow to decode": "guests.raw(guests.head(Content_Length=str((3 << 18) + 1),"
    " Content_Type='application/json; charset=punycode'), b'a' * (1 << 18) + b'-' + b'9a' * (1 << 18))",
    "a character set that does not exist": "guests.raw(guests.head(Content_Length='2',"
    " Content_Type='application/json; charset=nonsense'), b'{}')",
    "a compressed body that grows a thousandfold": "import gzip\n"
    "body = gzip.compress(bytes(1 << 27))\n"
    "for method in ('gzip', 'deflate', 'br', 'zstd'):\n"
    "    guests.post(body, Content_Encoding=method)",
    "lone surrogates in every name": "guests.post(json.dumps({'server_name': '\\ud800',"
    " 'server_params': {'a': '\\ud800'}, 'seal': '\\ud800:\\ud800',"
    " 'tool_name': '\\ud800', 'tool_args': {'\\ud800': '\\ud800'}}).encode())",
    "arguments that are nested to any depth": """
entry = guests.registered()["scripted"]
head = json.dumps({"server_name": "scripted", "server_params": entry["params"], "seal": entry["seal"],
                   "tool_name": "echo"})[:-1]
for depth in range(800, 1000, 10):
    said = guests.post((head + ', "tool_args": {"text": ' + "[" * depth + "]" * depth + "}}").encode())
    assert said, depth
""",
    "a hundred thousand pipelined requests": "guests.raw(guests.head('GET', '/') * 100_000)",
    "half requests that stay": "kept = [guests.connect() for _ in range(200)]\n"
    "for each in kept: each.sendall(guests.head()[:20])",
    "answers that nobody reads": """
kept = []
entry = guests.registered()["scripted"]
body = json.dumps({"server_name": "scripted", "server_params": entry["params"], "seal": entry["seal"],
                   "tool_name": "echo", "tool_args": {"text": "x" * (4 << 20)}}).encode()
for _ in range(8):
    kept.append(guests.connect())
    kept[-1].sendall(guests.head(Content_Length=str(len(body))) + body)
""",
    "two thousand connections, one after the other": "for _ in range(2000): guests.connect().close()",
    "bytes that are no HTTP": "for _ in range(50): guests.raw(os.urandom(1 << 16))",
    "TLS": "guests.raw(bytes.fromhex('160301020001') + os.urandom(600))",
    "HTTP/2": "guests.raw(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n' + os.urandom(100))",
    "an upgrade to a WebSocket, and frames": "guests.raw(guests.upgrade('/run', 'token x') + b'\\xff' * 100_000)",
    "a header value with line ends": "guests.raw(guests.head("
    "X='a\\r\\n\\r\\nPUT /reset HTTP/1.1\\r\\nHost: localhost'))",
    "a foreign Host, Origin or token": """
for headers in ({"Host": "evil.example"}, {"Host": "localhost.evil.example"}, {"Host": "127.0.0.1@evil.example"},
                {"Origin": "http://localhost"}, {"Origin": "null"}, {"Authorization": "token x"},
                {"Authorization": ""}):
    status, _ = guests.request("POST", "/run", b"{}", **headers)
    assert status in (401, 403), (status, headers)
""",
    "routes that install, register or list": """
for path in ("/install_package", "/register_mcp_server", "/register", "/api/kernels", "/execute", "/", "/run/../status",
             "/approval/", "/RUN"):
    for method in ("GET", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE"):
        status, _ = guests.request(method, path, b'{"package_name": "x"}')
        assert status in (400, 403, 404, 405), (status, method, path)
""",
}


@pytest.mark.parametrize("name", PORT_ATTACKS)
@pytest.mark.slow
async def test_the_tool_port_bears(name: str, sandboxed: Side, table: list[Row]) -> None:
    await sandboxed.works()
    async with Heart().beating() as heart:
        text = await sandboxed.run(f"{PORT_ATTACKS[name]}\nguests.tell(True)")
        assert guests.REACHED in text, f"the attack did not take place: {text}"
        await sandboxed.works()
        await sandboxed.run("kept = None")
    table.append(Row(PORT_AREA, name, "an honest call is answered", heart.check(large=name in LARGE)))


async def test_a_kernel_gets_no_more_connections_than_it_may_have(sandboxed: Side, table: list[Row]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    code = f"""
import select
kept = [guests.connect() for _ in range({MAX_CONNECTIONS} + 300)]
for each in kept:
    try: each.sendall(guests.head()[:20])
    except OSError: pass
"""
    async with Heart().beating() as heart:
        text = await sandboxed.run(code)
        assert "Traceback" not in text
        assert len(os.listdir("/proc/self/fd")) - before < MAX_CONNECTIONS + 50
        await sandboxed.run("for each in kept: each.close()\ndel kept")
        await sandboxed.works()
    table.append(Row(PORT_AREA, "more connections than it may have", "an honest call is answered", heart.check()))
