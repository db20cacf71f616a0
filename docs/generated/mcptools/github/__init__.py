"""Tools of the MCP server github, one module each.

search_repositories: Searches the repositories that the token…
list_commits: Lists the history of a repository, newest commit…"""

from typing import Annotated, Literal

from ipybox.tool_exec.client import ToolRunner
from ipybox.tool_exec.models import UNSET, ToolParams
from pydantic import Field

__all__ = ["Annotated", "CLIENT", "Field", "Literal", "ToolParams", "UNSET"]

CLIENT = ToolRunner.from_env(
    server_name="github",
    server_params={
        "url": "https://api.githubcopilot.com/mcp/",
        "headers": {"Authorization": "Bearer ${GITHUB_API_KEY}"},
    },
    seal="",
)
