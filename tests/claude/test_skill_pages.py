"""The pages of the skill in the newest client, which reads no file of a plugin without a permission."""

import shutil
from pathlib import Path

from tests.claude.api import Block, Request, serve, text, tool
from tests.claude.cli import SESSION_TIMEOUT, Home
from tests.claude.conftest import newest_client
from tests.servers import ROOT


@newest_client
def test_pages_of_the_skill_are_read_without_a_person_and_no_other_file_is(home: Home, tmp_path: Path):
    plugin, project = tmp_path / "plugin", tmp_path / "project"
    project.mkdir()
    skill = plugin / "skills" / "codeact"
    shutil.copytree(ROOT / "skills" / "codeact", skill)
    (plugin / ".claude-plugin").mkdir()
    (plugin / ".claude-plugin" / "plugin.json").write_text('{"name": "pages", "version": "1.0.0"}')
    pages = sorted((skill / "references").iterdir())

    def reads(_: Request) -> list[Block]:
        return [tool("Read", file_path=str(page)) for page in [*pages, "/etc/passwd"]]

    def are_read(request: Request) -> list[Block]:
        *read, refused = request.results
        assert [result.is_error for result in read] == [False] * len(pages) != []
        assert refused.is_error
        return [text("Read.")]

    with serve([[tool("Skill", skill="pages:codeact")], reads, are_read]) as api:
        said = home.claude(
            *("-p", "Go", "--allowedTools=Skill", "--permission-mode=default", f"--plugin-dir={plugin}"),
            cwd=project,
            timeout=SESSION_TIMEOUT,
            ANTHROPIC_BASE_URL=api.url,
        )
    assert said.strip() == "Read."
