"""What the tests of repairs share."""

import pytest

from tests.programs.programs import Program


@pytest.fixture(autouse=True)
def _unloaded(program: Program) -> None:
    """Clear away the modules that a test loads from its folder."""
