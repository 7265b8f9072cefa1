"""The table that the tests do something bad to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

import memwal_sql as mw
from tests.bad_input.rows import make_rows


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def table(uri: str) -> Iterator[Any]:
    """Keys 0 to 2 in the base table."""
    lance.write_dataset(make_rows(0, 1, 2), uri)
    yield mw.enable(uri, primary_key="id")
