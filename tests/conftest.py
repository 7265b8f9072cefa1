"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from memwal_sql.storage import settle

# A slow machine is no failure of the code; a database of examples would make runs differ.
settings.register_profile("repeatable", deadline=None, database=None)
settings.load_profile("repeatable")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries of the store without waiting."""
    monkeypatch.setattr(settle, "_FIRST_PAUSE_SECONDS", 0.0)
