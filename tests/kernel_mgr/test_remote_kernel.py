"""What the application makes of the gateway's words about modules that are not preloaded."""

from typing import Any

from ipybox.kernel_mgr.remote_kernel import preload_notices

NOTICE = "pandas is not preloaded, because importing it starts threads; kernels import it on first use instead."


def test_only_known_words_of_the_gateway_become_a_notice():
    said: dict[str, Any] = {"pandas": "threads", "numpy": "**free text**", "absent": "fails", "sympy": ["fails"]}
    kernel = {"id": "x", "ipybox_not_preloaded": said}
    assert preload_notices(["pandas", "numpy", "sympy"], kernel) == [NOTICE]
    for other in ({}, {"ipybox_not_preloaded": "pandas"}, {"ipybox_not_preloaded": None}):
        assert preload_notices(["pandas"], other) == []
