"""A small table in three layers, for every regression test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

import memwal_sql as mw
from tests.model.pairs import rows


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def table(uri: str) -> Any:
    """Keys 0 to 9 with n = key in the base table, one region."""
    lance.write_dataset(rows(*((i, i) for i in range(10))), uri)
    return mw.enable(uri, primary_key="id")
