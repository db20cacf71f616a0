"""A generated package on disk: its files, its inputs, and how it replaces the previous one."""
