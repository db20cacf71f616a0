"""Reports on sales.csv, which code reads through the filesystem server: `python run.py [WORKSPACE]`."""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from ipybox import ApprovalRequest, CodeExecutor, generate_mcp_sources

DATA = Path(__file__).resolve().parent / "sales.csv"

READ = """
import csv
from collections import Counter
from mcptools.filesystem import read_text_file

text = read_text_file.run(read_text_file.Params(path=path)).content
rows = list(csv.DictReader(text.splitlines()))
by_region, by_month = Counter(), Counter()
for row in rows:
    revenue = int(row["units"]) * float(row["price"])
    by_region[row["region"]] += revenue
    by_month[row["month"]] += revenue
for region, revenue in by_region.most_common():
    print(f"{region:8}{revenue:10,.2f}")
"""

PLOT = """
import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(ncols=2, figsize=(9, 3))
left.bar(by_region.keys(), by_region.values(), color="#3574d4")
left.set_title("Revenue by region")
right.plot(by_month.keys(), by_month.values(), marker="o", color="#24539c")
right.set_title("Revenue by month")
figure.tight_layout()
plt.show()
"""


def filesystem(directory: Path) -> dict[str, Any]:
    """Returns how the filesystem server starts: the installed one, or the one that npx installs."""
    if shutil.which("mcp-server-filesystem"):
        return {"command": "mcp-server-filesystem", "args": [str(directory)]}
    return {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", str(directory)]}


async def approve(request: ApprovalRequest) -> None:
    """Accepts calls that read: a report has nothing to write."""
    if request.tool_name.startswith(("read_", "list_")):
        await request.accept()
    else:
        await request.reject("a report only reads")


async def main(workspace: Path) -> None:
    """Prints the revenue of each region, and the path of the plots."""
    await generate_mcp_sources("filesystem", filesystem(DATA.parent), workspace / "mcptools")
    async with CodeExecutor(working_dir=workspace, approver=approve) as executor:
        table = await executor.execute(READ, variables={"path": str(DATA)})
        plots = await executor.execute(PLOT)
    print(table.text)
    print("plots:", *plots.images)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="csv-report-"))))
