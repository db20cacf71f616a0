"""What both ends say to each other: HTTP/2 over the standard streams of the engine's command."""
