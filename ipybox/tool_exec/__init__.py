"""The application's half of tool calls: the server that asks for approval and runs them; kernels have `guest.tools`."""
