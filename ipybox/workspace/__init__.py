"""Decides what the host may trust in a workspace: files that code can write are only input.

Such a file never configures or names anything on the host, and the host never imports or executes it.

Read in this order:

    writable       paths that code can write, paths that are trusted, and programs that the host runs
    scan           names in the workspace to hide or protect; `git_config` finds credentials
    imports        modules that the host imports
    registrations  the current registration of each server; `seal` ties tool calls and secrets to it
    env_file       `.env` as a plain mapping
    trust          files that a person trusts
"""
