"""The documents, made once for all tests of how they are shown."""

import pytest

from symattn import Document


@pytest.fixture(scope="session")
def documents() -> list[tuple[str, Document]]:
    """Every document with its name."""
    from tests.shown.documents import every  # here, since every run of pytest reads this file

    return list(every())
