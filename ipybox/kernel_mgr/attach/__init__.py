"""How Jupyter clients of a person reach a running kernel: a relay on a loopback port."""
