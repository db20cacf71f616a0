"""How a person's Jupyter clients reach a running kernel: a relay on a loopback port."""
