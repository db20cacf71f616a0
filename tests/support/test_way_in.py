"""Messages name settings that the person has."""

import pytest

from ipybox.cli.option_table import OPTIONS
from ipybox.support import way_in
from tests.servers import ROOT

#: Parameters that messages name as a place where people set something.
SETTINGS = ("allowed_domains", "audit")


@pytest.mark.parametrize("parameter", SETTINGS)
def test_a_setting_is_an_option_of_the_command_line_and_of_the_plugins(parameter: str, monkeypatch: pytest.MonkeyPatch):
    (option,) = (option for option in OPTIONS if option.parameter == parameter)
    assert f"[{parameter}]" in (ROOT / "plugins" / "settings.toml").read_text().splitlines()
    assert "serve" in option.commands.split()

    monkeypatch.setattr(way_in, "_way", way_in.WayIn.COMMAND_LINE)
    assert way_in.setting(parameter) == option.flag
    assert way_in.option_name(option.flag) == option.flag
    monkeypatch.setattr(way_in, "_way", way_in.WayIn.PLUGIN)
    assert f"the plugin's option {parameter} " in way_in.setting(parameter)
    assert way_in.option_name(option.flag) == f"the plugin's option {parameter}"


@pytest.mark.parametrize(
    ("variables", "way"), [({}, "restart ipybox"), ({"CLAUDE_PLUGIN_ROOT": "/x"}, "reconnect ipybox with /mcp")]
)
def test_a_plugin_is_known_by_the_variable_of_claude_code(
    variables: dict[str, str], way: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(way_in, "_way", way_in.WayIn.SDK)
    monkeypatch.delenv("CLAUDE_PLUGIN_ROOT", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert way_in.restart() == "start a new executor"

    way_in.use_command_line()

    assert way_in.restart() == way


def test_a_model_is_told_to_pass_on_what_only_a_person_can_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(way_in, "_read_by_model", False)
    assert way_in.for_person("To allow it, do this.") == "To allow it, do this."

    way_in.use_model()

    assert way_in.for_person("To allow it, do this.") == "Tell the user: To allow it, do this."
