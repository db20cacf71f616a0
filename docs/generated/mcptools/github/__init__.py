"""Tools of the MCP server github, one module each.

search_repositories: Searches the repositories that the token can see.
list_commits: Lists the history of a repository, newest commit first."""

from ipybox.tool_exec.client import ToolRunner

CLIENT = ToolRunner.from_env(
    server_name="github",
    server_params={
        "url": "https://api.githubcopilot.com/mcp/",
        "headers": {"Authorization": "Bearer ${GITHUB_API_KEY}"},
    },
    seal="",
)
