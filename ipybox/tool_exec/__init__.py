"""Tool calls: the light client in the kernel, and the server outside that asks for approval and makes them."""
