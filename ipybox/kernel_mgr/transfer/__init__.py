"""Transfers files into and out of a workspace, for callers that can't access its file system or must not trust it.

The caller is a remote MCP client, which exchanges only content (`file_tools`), the application on the same machine
(`CodeExecutor.upload_file`, `download_file`), or an end of the link to a node (`ipybox.remote`). Code in the kernel may
write to the workspace during a transfer; `paths` describes what protects a transfer from that. Only regular files and
directories are transferred. Files are written completely, then renamed (`files`).
"""
