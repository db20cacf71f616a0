"""Resource limits of kernels: `resource_limits` defines them, and `monitor` kills the kernel that exceeds one.

`kernel_processes` finds the kernel that each process belongs to; `process_tree` lists and measures processes.
"""
