"""Chunks as a program prints them."""

from ipybox import CodeExecutionChunk, Display, Stream


def test_the_repr_of_a_chunk_shows_its_output_shortened():
    chunk = CodeExecutionChunk("", output=Display({"image/png": "A" * 10_000_000, "text/plain": "chart"}))

    assert repr(CodeExecutionChunk("a\n", output=Stream("stdout", "a\n"))) == (
        "CodeExecutionChunk(text='a\\n', notice=False, output=Stream(name='stdout', text='a\\n'))"
    )
    assert "Display(data={'image/png': 'AAA" in repr(chunk)
    assert "'text/plain': 'chart'" in repr(chunk)
    assert len(repr(chunk)) < 500
