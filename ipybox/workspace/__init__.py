"""Decides what the host may trust in a workspace: files in places that code can write are only input.

Such a file never configures or names anything on the host, and the host never imports or executes it.

Read in this order:

    writable       which places code can write, and which paths are trusted
    scan           finds hidden and protected names in the whole workspace; `git_config` finds credentials
    programs       programs that the host runs
    imports        modules that the host imports
    registrations  the current registration of each server; `seal` ties calls to it
    env_file       `.env` as a mapping, and no more
    trust          files that a person trusts
"""
