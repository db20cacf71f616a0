"""Runs ipybox in a container, for `ipybox docker`: checks, starts and removes it.

Imports only the standard library, even indirectly: a plugin runs it without installing ipybox.
"""
