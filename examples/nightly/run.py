"""Runs a saved code action at night, without a person: `python run.py REPOSITORY [WORKSPACE]`.

It writes reports/<date>.md in the workspace, by default `workspace/` next to this file. It prints nothing, so that cron
sends a mail only if something fails. The audit log in .ipybox/audit.jsonl records what ran.
"""

import asyncio
import shutil
import sys
from datetime import datetime, timedelta
from pathlib import Path

from ipybox import CodeExecutor, generate_mcp_sources

HERE = Path(__file__).resolve().parent

CODE = """
from gentools.git.changes_since import run

changes = [change.model_dump() for change in run(repository, since)]
"""


async def main(repository: Path, workspace: Path) -> None:
    """Writes the report of the last day."""
    shutil.copytree(HERE / "gentools", workspace / "gentools", dirs_exist_ok=True)
    now = datetime.now()
    yesterday = (now - timedelta(days=1)).isoformat(timespec="seconds")
    server_params = {"command": sys.executable, "args": ["-m", "mcp_server_git", "--repository", str(repository)]}
    await generate_mcp_sources("git", server_params, workspace / "mcptools")
    async with CodeExecutor(working_dir=workspace, approval_policy=HERE / "ipybox.yaml", audit="full") as executor:
        await executor.execute(CODE, variables={"repository": str(repository), "since": yesterday})
        changes = await executor.get("changes")
    lines = [f"- {change['subject']} ({change['author']})" for change in changes] or ["Nothing changed."]
    report = workspace / "reports" / f"{now.date()}.md"
    report.parent.mkdir(exist_ok=True)
    report.write_text(f"# Changes since {yesterday}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    asyncio.run(
        main(Path(sys.argv[1]).resolve(), Path(sys.argv[2] if len(sys.argv) > 2 else HERE / "workspace").resolve())
    )
