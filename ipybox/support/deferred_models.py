"""Saves time where a library declares hundreds of pydantic models, of which a process uses a few: the MCP SDK.

It has an effect only in ipybox's own processes, and never in an application that imports ipybox.
"""

from collections.abc import Generator
from contextlib import contextmanager

from ipybox.support.gc_pause import is_own_process


@contextmanager
def models_built_on_use() -> Generator[None]:
    """Lets pydantic build the validator of each model that is declared in this context at its first use.

    https://docs.pydantic.dev/latest/api/config/#pydantic.config.ConfigDict.defer_build

    Classes of which objects are created in threads must set `defer_build=False`: in earlier versions of pydantic, two
    threads can't build one at the same time.
    """
    if not is_own_process():
        yield
        return
    from pydantic import BaseModel

    config = BaseModel.model_config
    BaseModel.model_config = {**config, "defer_build": True}
    try:
        yield
    finally:
        BaseModel.model_config = config
