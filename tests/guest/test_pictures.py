"""Figures are images where a package can make them, and widgets have the text that they have at the end of the cell.

The packages are stand-ins with the few names that are used: the real ones are large, and some need a browser.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ipybox import CodeExecutionError, CodeExecutor
from tests.code_exec.cells import text
from tests.conftest import Mode

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODULES = {
    "plotly/__init__.py": "",
    "plotly/io.py": """
def to_image(figure, format, validate): return b'plotly ' + format.encode() + bytes(figure['data'])
""",
    "kaleido.py": "",
    "altair/__init__.py": "",
    "altair/vegalite/__init__.py": "",
    "altair/vegalite/v6/__init__.py": "",
    "altair/vegalite/v6/api.py": """
class TopLevelMixin:
    def __init__(self, fails=False): self.fails = fails
    def __repr__(self): return "alt.Chart(...)"
    def _repr_html_(self): return "<div></div><script>vegaEmbed()</script>"
    def save(self, file, format):
        if self.fails: raise ValueError("no data")
        file.write(b"altair " + format.encode())
class Chart(TopLevelMixin): pass
""",
    "vl_convert.py": "",
    "ipywidgets/__init__.py": "",
    "ipywidgets/widgets/__init__.py": "",
    "ipywidgets/widgets/widget.py": """
_instances = {}
class Widget:
    def __init__(self, *children, **values):
        vars(self).update(values, children=children)
        _instances[str(id(self))] = self
    def close(self): del _instances[str(id(self))]
    def __repr__(self): return f"{self.value} of 3"
    def _repr_mimebundle_(self, **kwargs):
        view = {"model_id": str(id(self))}
        return {"text/plain": repr(self), "application/vnd.jupyter.widget-view+json": view}
class Bar(Widget):
    ended = False
    def __repr__(self):
        if self.ended: raise ReferenceError("weakly-referenced object no longer exists")
        return "0%"
""",
}
PLOTLY = "'application/vnd.plotly.v1+json': {'data': 2}, 'text/html': '<div>'"
WIDGETS = "from ipywidgets.widgets.widget import Bar, Widget\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None) -> AsyncIterator[CodeExecutor]:
    workspace = tmp_path_factory.mktemp("workspace")
    for name, source in MODULES.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(source)
    async with CodeExecutor(working_dir=workspace, sandbox=mode.sandbox) as executor:
        yield executor


@pytest.mark.parametrize(
    ("code", "picture"),
    [
        pytest.param(f"import plotly; display({{{PLOTLY}}}, raw=True)", b"plotly png\0\0", id="plotly"),
        pytest.param("from altair.vegalite.v6.api import Chart; Chart()", b"altair png", id="altair"),
        pytest.param("from altair.vegalite.v6.api import Chart; display(Chart())", b"altair png", id="altair_display"),
    ],
)
async def test_a_figure_is_an_image_if_its_package_can_make_one(executor: CodeExecutor, code: str, picture: bytes):
    result = await executor.execute(code)

    assert (result.text, [path.read_bytes() for path in result.images]) == (None, [picture])
    assert [path.suffix for path in result.files] == [".html"]


@pytest.mark.parametrize("package", ["kaleido", "vl_convert"])
async def test_a_figure_without_that_package_is_a_line_that_names_it(
    executor: CodeExecutor, package: str, tmp_path: Path
):
    hide = "import importlib.util, plotly\nfind = importlib.util.find_spec\n"
    hide += f"importlib.util.find_spec = lambda name: None if name == {package!r} else find(name)\n"
    figures = {
        "kaleido": f"display({{{PLOTLY}}}, raw=True)",
        "vl_convert": "from altair.vegalite.v6.api import Chart; Chart()",
    }
    result = await executor.execute(hide + figures[package])
    await executor.execute("importlib.util.find_spec = find")

    (html,) = result.files
    called, named = {"kaleido": ("plotly figure", "kaleido"), "vl_convert": ("Vega chart", "vl-convert-python")}[
        package
    ]
    assert (result.text or "").startswith(f"[{called} saved as {html.name}; with {named}")
    assert result.images == []


async def test_a_figure_whose_picture_fails_has_its_other_forms(executor: CodeExecutor):
    result = await executor.execute("from altair.vegalite.v6.api import Chart; Chart(fails=True)")

    assert (result.text or "").startswith("[Vega chart saved as ")
    assert result.images == []


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        pytest.param("w = Widget(value=0)\ndisplay(w)\nprint('a')\nw.value = 3", "3 of 3\na", id="changed"),
        pytest.param("w = Widget(value=3)\ndisplay(w, display_id='x')", "3 of 3", id="with_an_id_of_its_own"),
        pytest.param(
            "for i in range(2):\n    w = Widget(value=0)\n    display(w)\n    w.value = i", "0 of 3\n1 of 3", id="two"
        ),
        pytest.param("w = Widget(value=0)\ndisplay(w)\nw.close()\nprint('a')", "a", id="closed"),
        pytest.param(
            "w = Bar(Widget(value='100%'), Widget(value=3), Widget(value='\\u20073/3\\u2007[&lt;1]'))\n"
            "display(w)\nw.ended = True",
            "100% 3/3 [<1]",
            id="a_bar_that_has_ended",
        ),
        pytest.param(
            "w = Widget(value=0)\ndisplay(w)\nget_ipython().run_cell('w.value = 2')\nw.value = 3", "3 of 3", id="nested"
        ),
    ],
)
async def test_a_widget_has_the_text_of_the_end_of_the_cell(executor: CodeExecutor, code: str, shown: str):
    assert await text(executor, WIDGETS + code + ";") == shown


async def test_a_widget_of_a_cell_that_fails_has_its_last_text_too(executor: CodeExecutor):
    with pytest.raises(CodeExecutionError) as error:
        await executor.execute(f"{WIDGETS}w = Widget(value=0)\ndisplay(w)\nw.value = 2\n1 / 0")

    assert error.value.text == "2 of 3"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        pytest.param("%%capture caught\nprint('a')", None, id="all"),
        pytest.param(
            "%%capture --no-stderr caught\nimport sys; print('a'); print('b', file=sys.stderr)", "b", id="stdout"
        ),
        pytest.param(f"%%capture caught\n{WIDGETS}print('a'); display(Widget(value=0))", None, id="widget"),
        pytest.param("get_ipython().run_cell_magic('capture', 'caught', 'print(\"a\")'); print('b')", "b", id="nested"),
    ],
)
async def test_what_code_captures_is_not_shown(executor: CodeExecutor, code: str, shown: str | None):
    assert await text(executor, code) == shown
    assert await executor.execute("caught.stdout") == await executor.execute("'a\\n'")


async def test_lines_of_rich_are_text_and_no_files(executor: CodeExecutor):
    result = await executor.execute(
        "import rich\nfor i in range(30): rich.print(f'[bold]{i}[/bold]')\nrich.print(); rich.print({'a': 1})"
    )

    assert result.text == "\n".join(map(str, range(30))) + "\n\n{'a': 1}"
    assert (result.files, result.notices) == ([], [])
