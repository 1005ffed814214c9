"""The pages that are written by a command are what it writes now."""

from __future__ import annotations

import pytest

from symattn_cli.main import main
from tests.docs.pages import ROOT

TABLE = ROOT / "docs" / "variants-table.md"


@pytest.mark.deep
def test_the_table_of_variants_is_not_stale() -> None:
    assert main(["derive", "variants", "--check", str(TABLE)]) == 0, "hint: derive variants -o docs/variants-table.md"
