"""What all tests share."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from memwal_sql.storage.objects import create_once as settle

# A slow machine is no failure of the code; a database of examples would make runs differ.
settings.register_profile("repeatable", deadline=None, database=None)
settings.load_profile("repeatable")

# Folders whose tests share what takes long to start: one Spark, one built wheel.
_SHARED = ("tests/spark/", "tests/install/")


class _FolderScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """One worker runs all tests of a shared folder; any other test is handed out by itself."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in _SHARED if nodeid.startswith(folder)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """The marks of groups that xdist offers have no effect with pytest 9.2."""
    return _FolderScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SHARED))


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries of the store without waiting."""
    monkeypatch.setattr(settle, "_FIRST_PAUSE_SECONDS", 0.0)
