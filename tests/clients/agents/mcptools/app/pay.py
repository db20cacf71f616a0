"""Pays an amount."""

from . import CLIENT, Input


class Params(Input, extra="forbid"):
    amount: int


@CLIENT.tool
def run(params: Params) -> str: ...


run_async = run.aio
