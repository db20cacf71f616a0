"""What lies in a place that code can write is input: it never configures, names, or is imported or run by the host.

Read in this order:

    writable       which places code can write, and what may be trusted of a path
    names          the names that are hidden or protected in a workspace
    scan           finds them, in all of it; `git_config` finds credentials
    programs       programs that the host runs
    imports        modules that the host imports
    stdio_servers  how MCP servers start
    scratch        where the host keeps its own files for a while
    registrations  which parameters of a server are the current ones
    env_file       `.env` as a mapping, and no more
    narrowing      what a file of the workspace leaves of the user's settings
    trust          what a person has agreed to; `trust_command` asks, `config` applies it
"""
