"""Packages that are installed for the kernels of a workspace, and never run on the host."""

from ipybox.guest.packages import packages_dir
from ipybox.workspace.packages.installer import PackageInstaller
from ipybox.workspace.packages.store import InstallError

__all__ = ["InstallError", "PackageInstaller", "packages_dir"]
