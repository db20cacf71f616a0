"""Writes packages from any files, as registrations do from a server's tools."""

from pathlib import Path

from ipybox.mcp_apigen import generator


def write_package(place: Path, files: dict[str, str], *, untrusted_root: Path | None = None) -> generator.ToolModules:
    """Writes the files from `render_package` as a package to `place`."""
    with generator._held(place, untrusted_root) as (parent, record):  # pyright: ignore[reportPrivateUsage]
        return generator._write(parent, record, place, files, "", "", [], "")  # pyright: ignore[reportPrivateUsage]
