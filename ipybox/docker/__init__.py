"""ipybox in a container: what `ipybox docker` checks, starts and removes.

Standard library only, with all that it imports: a plugin runs it before, or without, an environment of ipybox.
"""
