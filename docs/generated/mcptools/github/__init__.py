"""Tools of the MCP server github, one module each.

search_repositories: Searches the repositories…
list_commits: Lists the history of a repository, newest…"""

from ipybox.tool_exec.client import ToolRunner
from ipybox.tool_exec.models import UNSET, Choice, Input
from pydantic import Field

__all__ = ["CLIENT", "Choice", "Field", "Input", "UNSET"]

CLIENT = ToolRunner.from_env(
    server_name="github",
    server_params={
        "url": "https://api.githubcopilot.com/mcp/",
        "headers": {"Authorization": "Bearer ${GITHUB_API_KEY}"},
    },
    seal="",
)
