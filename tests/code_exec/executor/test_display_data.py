"""The data of tables and charts, for applications that ask for it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from ipybox import CodeExecutor, Display
from tests.conftest import Mode
from tests.servers import WAIT

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHOWS = """
import matplotlib.pyplot as plt, pandas
display(pandas.DataFrame({"a": [1, 2]}))
plt.plot([1, 2], [3, 4], label="line")
plt.show()
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def showing(
    tmp_path_factory: pytest.TempPathFactory, mode: Mode, shared: None
) -> AsyncIterator[tuple[CodeExecutor, CodeExecutor]]:
    """An executor that asks for the data of displays, and its sibling."""
    directory = tmp_path_factory.mktemp("showing")
    running = CodeExecutor(working_dir=directory, sandbox=mode.sandbox, display_data=True)
    async with running, running.sibling() as sibling:
        yield running, sibling


async def test_displays_have_their_data_and_all_else_is_as_without_it(showing: tuple[CodeExecutor, CodeExecutor]):
    executor, _ = showing
    assert (await executor.execute("import sys; {'pandas', 'matplotlib'} & {*sys.modules}")).text == "set()"
    result = await executor.execute(SHOWS, WAIT)

    frame, figure = (output for output in result.outputs if isinstance(output, Display))
    assert frame.table is not None
    assert frame.table["data"] == [{"a": 1}, {"a": 2}]
    assert (frame.chart, figure.table) == (None, None)
    assert figure.chart is not None
    assert figure.chart["axes"][0]["series"] == [{"type": "line", "x": [1, 2], "y": [3, 4], "label": "line"}]
    assert {"image/png", "text/plain", "application/vnd.ipybox.chart+json"} == {*figure.data}
    assert result.text == "   a\n0  1\n1  2"
    assert [path.suffix for path in (*result.images, *result.files)] == [".png", ".html"]


async def test_what_can_not_be_read_is_shown_in_its_other_forms(showing: tuple[CodeExecutor, CodeExecutor]):
    _, sibling = showing
    code = """
import pandas
class Frame(pandas.DataFrame):
    @property
    def shape(self): raise RuntimeError("no data")
    def _repr_html_(self): return "<table>"
    def __repr__(self): return "frame"
Frame()
"""
    result = await sibling.execute(code, WAIT)
    (frame,) = result.outputs

    assert isinstance(frame, Display)
    assert (frame.table, frame.data) == (None, {"text/html": "<table>", "text/plain": "frame"})
    (other,) = (await sibling.execute("pandas.DataFrame({'a': [1]})")).outputs
    assert isinstance(other, Display)
    assert other.table is not None


async def test_what_code_sends_in_place_of_data_is_none(showing: tuple[CodeExecutor, CodeExecutor]):
    _, sibling = showing
    result = await sibling.execute("display({'application/vnd.ipybox.chart+json': [1]}, raw=True)")
    (display,) = result.outputs

    assert isinstance(display, Display)
    assert (display.chart, display.table) == (None, None)


async def test_without_the_option_displays_have_no_data(tmp_path: Path, mode: Mode):
    async with CodeExecutor(working_dir=tmp_path, sandbox=mode.sandbox) as executor:
        result = await executor.execute("import pandas\npandas.DataFrame({'a': [1]})", WAIT)
    (frame,) = result.outputs

    assert isinstance(frame, Display)
    assert {*frame.data} == {"text/html", "text/plain"}
