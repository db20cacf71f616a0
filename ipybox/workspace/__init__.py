"""Decides what the host may trust of a workspace: files in places that code can write are only input.

Such a file never configures or names anything on the host, and the host never imports or executes it.

Read in this order:

    writable       which places code can write, and which paths are trusted
    names          the names that are hidden or protected in a workspace
    scan           finds them in the whole workspace; `git_config` finds credentials
    programs       programs that the host runs
    imports        modules that the host imports
    stdio_servers  how MCP servers are started safely
    scratch        directories for temporary files of the host
    registrations  the current registration of each server
    env_file       `.env` as a mapping, and no more
    narrowing      a settings file of the workspace may only restrict
    removal        what ipybox keeps, and how it is removed
    trust          files that a person trusts; `trust_command` asks, `config` applies it
"""
