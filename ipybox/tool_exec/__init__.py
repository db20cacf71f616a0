"""The application's side of tool calls: asks for approval and runs them. `guest.tools` is the kernel's side."""
