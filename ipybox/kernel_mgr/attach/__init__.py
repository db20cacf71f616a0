"""A relay on a loopback port that connects a person's Jupyter clients to a running kernel."""
