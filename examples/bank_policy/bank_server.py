"""A stdio MCP server of an invented bank, to try the policy with: `python bank_server.py`."""

from mcp.server.mcpserver import MCPServer

ACCOUNTS = {"checking": 2500.0, "savings": 9000.0, "landlord": 0.0}

server = MCPServer("bank")


@server.tool()
def balance(account: str) -> float:
    """Returns the balance of an account."""
    return ACCOUNTS[account]


@server.tool()
def transfer(source: str, target: str, amount: float) -> float:
    """Transfers an amount to another account, and returns the new balance of the source."""
    if amount <= 0 or amount > ACCOUNTS[source]:
        raise ValueError(f"can't transfer {amount} from {source}")
    ACCOUNTS[source] -= amount
    ACCOUNTS[target] = ACCOUNTS.get(target, 0.0) + amount
    return ACCOUNTS[source]


@server.tool()
def close_account(account: str) -> None:
    """Closes an account."""
    del ACCOUNTS[account]


server.run()
