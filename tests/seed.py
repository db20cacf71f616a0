"""The seed of tests that make up their input: `SEED`, or today's date. pytest prints it first."""

import os
from datetime import UTC, datetime

SEED = int(os.environ.setdefault("SEED", f"{datetime.now(UTC):%Y%m%d}"))
