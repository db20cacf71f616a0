"""The protocol that both ends share: HTTP/2 over the standard streams of the engine's command."""
