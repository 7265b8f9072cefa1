"""Fixtures of the write tests."""

from __future__ import annotations

import pytest

from memwal_sql.storage import settle


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries of the store without waiting."""
    monkeypatch.setattr(settle, "_FIRST_PAUSE_SECONDS", 0.0)
