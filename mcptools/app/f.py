"""f"""

from . import CLIENT, Input, Output


class Params(Input, extra="forbid"):
    a: int


class Result(Output):
    result: int


@CLIENT.tool
def run(params: Params) -> Result: ...


run_async = run.aio
