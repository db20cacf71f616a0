"""Transfers files into a workspace and out of it, for callers that can't see its file system or must not trust it.

The caller is an MCP client elsewhere, which sends and gets only content (`file_tools`), the application on the same
machine (`CodeExecutor.upload_file`, `download_file`), or an end of the link to a node (`ipybox.remote`). During the
transfer, code in the kernel may write the workspace. Therefore, a path is resolved
once (`paths`), must then lie in an allowed directory and have no protected name (`rules`), and is opened component by
component without following any link, so that nothing that appears after the check leads elsewhere. Only regular files
and directories are transferred. Written files are completed first and then renamed (`files`).
"""
