"""A sandbox's policy with things that it refuses."""

from pathlib import Path

import pytest

from ipybox.sandbox.policy import SandboxPolicy
from ipybox.sandbox.settings import SandboxSettings
from tests.sandbox.denials.texts import SOURCE


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace beside a home with credentials, which the texts of the tables call `HOME`."""
    workspace = tmp_path / "workspace"
    for directory in (workspace / ".git" / "hooks", workspace / "secret" / "open", tmp_path / "home" / ".ssh"):
        directory.mkdir(parents=True)
    for file in (".env", "x.pem", "keep.txt", "a.txt", "secret/g", "secret/open/f", ".git/config"):
        (workspace / file).write_text("content of the file\n")
    (tmp_path / "home" / ".ssh" / "id_rsa").write_text("content of the file\n")
    (tmp_path / "home" / ".netrc").write_text("content of the file\n")
    (workspace / "link").symlink_to("../home/.ssh/id_rsa")
    return workspace


@pytest.fixture
def settings(workspace: Path) -> SandboxSettings:
    home = workspace.parent / "home"
    return SandboxSettings(
        source=SOURCE,
        deny_read=(f"{home}/.ssh", f"{home}/.netrc", ".env", "*.pem", "secret"),
        allow_read=("secret/open",),
        allow_write=(".",),
        deny_write=("keep.txt",),
    )


@pytest.fixture
def policy(settings: SandboxSettings, workspace: Path) -> SandboxPolicy:
    return SandboxPolicy(settings, workspace)


@pytest.fixture
def proxied(workspace: Path) -> SandboxPolicy:
    allowed, denied = ("allowed.test", "*.ok.test"), ("bad.ok.test",)
    return SandboxPolicy(SandboxSettings(source=SOURCE, allowed_domains=allowed, denied_domains=denied), workspace)
