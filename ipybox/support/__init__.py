"""Small parts that any package uses: sockets, tasks, files that only the user can read, safe directories."""
