"""Packages that are installed for the kernels of a workspace, and never run on the host."""

from ipybox.guest.packages import packages_dir
from ipybox.kernel_mgr.packages.installer import PackageInstaller
from ipybox.kernel_mgr.packages.store import InstallError

__all__ = ["InstallError", "PackageInstaller", "packages_dir"]
