"""Files that go into a workspace and out of it, for those who can't see its file system or must not trust it.

The one who asks may be elsewhere and send and get content only (`tools`, over MCP), or be the application on the same
machine (`CodeExecutor.upload_file`, `download_file`). Meanwhile, code in the kernel may write the workspace. So a path
is resolved once (`places`), must then lie in an allowed directory and have no protected name (`rules`), and is opened
component by component without following any link, so that nothing that appears after the check leads elsewhere. Only
regular files and directories are transferred. What is written is complete first and then renamed (`files`).
"""
