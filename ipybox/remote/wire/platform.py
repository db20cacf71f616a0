"""For which Python and system the packages of a machine are: those of another one can't be imported there."""

import platform
import sys
import sysconfig


def platform_name() -> str:
    """Returns what must be equal where the same packages are used, such as `CPython 3.11 on linux-x86_64 (glibc)`."""
    library = platform.libc_ver()[0]
    python = f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}"
    return f"{python} on {sysconfig.get_platform()}{f' ({library})' if library else ''}"
