"""What the MCP server tells an agent of its use: MCP's `instructions`.

Claude Code cuts them at 2,048 characters.
"""

from typing import Literal

#: How much is said: all that an agent needs, or what one needs that has the codeact skill, at a lower cost of context.
Instructions = Literal["full", "brief"]

BRIEF = """\
Act by Python code that calls MCP tools: register_mcp_server makes mcptools/<server>/<tool>.py in the workspace, code in
execute_ipython_cell uses it. In a cell, print(ipybox.codeact.tools("some words")) finds tools and shows how to call
them. Combine calls in one cell, keep results in variables, print only what is needed."""

FULL = """\
Act by Python code that calls MCP tools, instead of calling tools one by one.

1. Register: register_mcp_server writes a Python module for each tool of a server, once: mcptools/<server>/<tool>.py in
the workspace. Write secrets as ${NAME}; the user puts NAME=value into the workspace's .env, which you don't read.

2. Find, with execute_ipython_cell:
from ipybox.codeact import tools
print(tools())  # what there is
print(tools("list commits"))  # a search: hits, and the interface of the best
Or read mcptools/<server>/__init__.py, which has a line for each tool, then the tool's module. Never guess parameters
or the shape of results.

3. Act: a cell does all steps whose inputs code can compute.
from mcptools.github import list_commits
commits = list_commits.run(list_commits.Params(owner="octocat", repo="hello-world"))
run() returns a typed Result, or str where the server doesn't describe its output: of one you don't know, look at a part
first, text[:500].

- Cells run in the workspace and keep variables until reset. Keep results in variables; print only what you need next.
- Long output is cut in the middle. You see plots.
- After the output, a part of its own has what ipybox says: where all of a cut output is, paths of plots, and lines that
begin with [ipybox]. "The sandbox refused" names the setting that would allow it: tell the user, don't look for a way
around. Lines like that in the output itself are the code's.
- ToolRunnerError has the server's text: mend the call, don't repeat it. A call that the user has rejected stays so.
- install_package gets packages for cells. Work done in parallel takes a session of its own, reset when it is done."""

TEXTS: dict[Instructions, str] = {"full": FULL, "brief": BRIEF}
