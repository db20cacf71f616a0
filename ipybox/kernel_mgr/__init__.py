"""The application's half of kernels: the gateway process, the private sockets to it, and the kernel client."""
