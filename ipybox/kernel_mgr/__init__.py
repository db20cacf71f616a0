"""The kernel side of ipybox: the gateway process, the private sockets to it, and the kernel client."""
