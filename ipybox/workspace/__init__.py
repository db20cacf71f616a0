"""What of a workspace, and of all that code can write, the host may believe."""
