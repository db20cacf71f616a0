"""Prints the number of tokens of each line of stdin, a JSON string. `make economics` makes the environment for it.

The vocabulary is in the package `anthropic` 0.38, the last one with a tokenizer, so that nothing is downloaded.
"""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

from tokenizers import Tokenizer

spec = find_spec("anthropic")
assert spec is not None
assert spec.origin is not None
tokenizer = Tokenizer.from_file(str(Path(spec.origin).with_name("tokenizer.json")))
for line in sys.stdin:
    print(len(tokenizer.encode(json.loads(line)).ids), flush=True)
