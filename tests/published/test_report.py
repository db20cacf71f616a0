"""The report in `dev/`, which `make servers` writes, is about the servers and calls of today's tests."""

import re

from tests.published.calls import CALLS
from tests.published.catalog import published_servers
from tests.servers import ROOT

REPORT = ROOT / "dev" / "servers.md"


def test_the_published_report_has_every_server_with_its_calls():
    rows = re.findall(r"^\| (\S+) \| \S+ \| \d+ \| (\d+) \|", REPORT.read_text(), re.MULTILINE)

    assert [(package, int(calls)) for package, calls in rows] == [
        (server.package, len(CALLS.get(name, []))) for name, server in published_servers().items()
    ]
