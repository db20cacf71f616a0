"""The product: the plugins as the real `claude` installs and runs them, offline."""

import pytest

# Not only tests assert here: so do the scripts that they run.
pytest.register_assert_rewrite("tests.claude.api", "tests.claude.cli", "tests.claude.example")
