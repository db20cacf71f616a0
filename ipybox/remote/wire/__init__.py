"""The protocol of both ends: HTTP/2 over the standard streams of the engine's command."""
