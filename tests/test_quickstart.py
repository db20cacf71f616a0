"""The quickstart as a new user follows it: a clone, an empty environment, and what the page says, copied and pasted.

`tests/claude/test_quickstart.py` follows its part about Claude Code.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.claude.cli import Home, publish
from tests.servers import ROOT

pytestmark = pytest.mark.kernel

#: Ten minutes, which the page promises.
TIMEOUT = 600

PAGE = (ROOT / "docs" / "quickstart.md").read_text()


def part(title: str) -> str:
    """Returns the text below a heading of the page."""
    return re.split(r"^## ", PAGE.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0]


def blocks(text: str, language: str) -> list[str]:
    """Returns the blocks of code in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def saved_and_run(text: str) -> str:
    """Returns commands that save the program of a part in the file that it names, and run it as it says."""
    name, command = re.findall(
        r"[Ss]ave (?:this|the program) as `(\w+\.py)`,? and run it with `([^`]+)`", _joined(text)
    )[0]
    (program,) = blocks(text, "python")
    return f"cat > {name} <<'END OF PROGRAM'\n{program}END OF PROGRAM\n{command}\n"


def _joined(text: str) -> str:
    return re.sub(r"\s*\n", " ", text)


def test_what_the_page_says_leads_to_approved_tool_calls_in_a_program_and_in_an_mcp_client(tmp_path: Path):
    sdk, client = part("Python SDK"), part("Any MCP client")
    (install,) = blocks(sdk, "bash")
    ((approved,), (asked,)) = blocks(sdk, "text"), blocks(client, "text")
    old = """\
                    print("approve?", item)
                    await item.accept()  # or: await item.reject("why")
"""
    new = f"                    {re.findall(r'`(await .item.accept.*?)`', _joined(sdk))[0]}\n"
    (program,) = blocks(sdk, "python")
    assert old in program
    changed = f"cat > asks.py <<'END OF PROGRAM'\n{program.replace(old, new)}END OF PROGRAM\nyes y | python asks.py\n"
    script = "\n".join(["set -e", install, "echo installed", saved_and_run(sdk), saved_and_run(client), changed])
    home = Home(tmp_path, publish(tmp_path), tmp_path)

    done = subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=home.path,
        env=home.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    *_, printed = done.stdout.partition("installed\n")
    assert printed.startswith(approved + asked)
    assert printed.removeprefix(approved + asked).endswith("? Asia/Tokyo +9.0h\nAfrica/Nairobi +3.0h\n")
