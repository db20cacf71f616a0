"""Tries a policy for a bank's MCP server: `python run.py [WORKSPACE]`."""

import asyncio
import sys
import tempfile
from pathlib import Path

from ipybox import ApprovalRequest, CodeExecutor, generate_mcp_sources

HERE = Path(__file__).resolve().parent

CODE = """
from ipybox.tool_exec.client import ToolRunnerError
from mcptools.bank import balance, close_account, transfer

def attempt(title, tool, **arguments):
    try:
        print(f"{title}: {tool.run(tool.Params(**arguments))}")
    except ToolRunnerError as error:
        print(f"{title}: {error}")

attempt("balance", balance, account="savings")
attempt("rent", transfer, source="checking", target="landlord", amount=400)
attempt("large", transfer, source="checking", target="landlord", amount=900)
attempt("stranger", transfer, source="checking", target="casino", amount=20)
attempt("savings", transfer, source="savings", target="checking", amount=1)
attempt("close", close_account, account="savings")
"""


async def person(request: ApprovalRequest) -> None:
    """Stands for a person, who is asked about what the rules leave open."""
    print("asked about", request)
    if request.tool_args["target"] == "landlord":
        await request.accept()
    else:
        await request.reject("I don't know this account")


async def main(workspace: Path) -> None:
    """Prints what the policy allows, asks about and denies."""
    server_params = {"command": sys.executable, "args": [str(HERE / "bank_server.py")]}
    await generate_mcp_sources("bank", server_params, workspace / "mcptools")
    policy = HERE / "ipybox.yaml"
    async with CodeExecutor(working_dir=workspace, approval_policy=policy, approver=person) as executor:
        print((await executor.execute(CODE)).text)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="bank-policy-"))))
