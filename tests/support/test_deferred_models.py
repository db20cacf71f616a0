"""Models of a library are built at their first use, but only in ipybox's own processes."""

import pytest
from pydantic import BaseModel, ValidationError

from ipybox.support import gc_pause
from ipybox.support.deferred_models import models_built_on_use


@pytest.mark.parametrize("own", [True, False])
def test_models_are_built_on_use_in_own_processes(own: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gc_pause, "_own_process", own)
    with models_built_on_use():

        class Inside(BaseModel):
            number: int

    class After(BaseModel):
        number: int

    assert (Inside.__pydantic_complete__, After.__pydantic_complete__) == (not own, True)
    with pytest.raises(ValidationError):
        Inside.model_validate({"number": "none"})
    assert Inside(number=1).number == 1
