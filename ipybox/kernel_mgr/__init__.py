"""The application's side of kernels: the gateway process, the private sockets to it, and the kernel client."""
