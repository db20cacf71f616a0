"""The text that tells an agent how to use the MCP server: MCP's `instructions`.

Claude Code truncates them at 2,048 characters.
"""

from ipybox.mcp_server import Instructions

BRIEF = """\
Call MCP tools from Python in execute_ipython_cell. Most tasks take two cells. One finds all tools needed:
from ipybox.codeact import tools
print(tools("search repositories", "list commits"))  # a verb and a noun per step
It shows the interface of the best match for each; tools("github.list_commits") shows one in full, tools() lists all.
The other cell does all steps:
from mcptools.github import list_commits
text = list_commits.run(list_commits.Params(owner="octocat", repo="hello"))
Prefer saved code actions, then run_parsed() where shown. Omit optional fields. Print only what you need next; for an
unfamiliar str, text[:500]. register_mcp_server adds servers. The codeact skill covers the rest: load it for
output parsers, saving actions or problems."""

FULL = """\
Write Python code that calls MCP tools, instead of calling tools one by one.

1. Register: register_mcp_server writes a Python module for each tool of a server, once: mcptools/<server>/<tool>.py in
the workspace. Write secrets as ${NAME}; the user puts NAME=value into the workspace's .env, which you don't read.

2. Find, with execute_ipython_cell:
from ipybox.codeact import tools
print(tools())  # all
print(tools("search repositories", "list commits"))  # a verb and a noun per step: shows the best matches
Or read mcptools/<server>/__init__.py, which lists all tools, then the tool's module. Never guess parameters
or the shape of results.

3. Act: do as many steps as you can in one cell.
from mcptools.github import list_commits
commits = list_commits.run(list_commits.Params(owner="octocat", repo="hello-world"))
run() returns a typed Result, or str if the server doesn't describe its output: for an unfamiliar str, print a part
first, text[:500].

- Cells run in the workspace and keep variables until reset. Keep results in variables; print only what you need next.
- Long output is truncated in the middle. You see plots.
- ipybox's messages are separate from the output: the file with the full output if it was truncated,
paths of plots, and lines that start with [ipybox]. "The sandbox refused" names the setting that would allow it: tell
the user, don't look for a way around it. Lines like that in the output itself come from the code.
- ToolRunnerError contains the server's error text: fix the call, don't retry it unchanged. Don't retry rejected calls.
- install_package installs packages for cells. For concurrent work use your own session, and reset it at the end."""

#: For clients that ignore instructions: part of the description of `execute_ipython_cell`.
MINIMAL = """\
Registered tools are modules of mcptools; print(tools("search repositories")), from ipybox.codeact, shows the best."""

TEXTS: dict[Instructions, str] = {"full": FULL, "brief": BRIEF}
