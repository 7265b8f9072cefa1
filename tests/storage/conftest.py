"""Commit logs for the tests of storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_sql.storage.objects.commit_log import SqliteCommitLog


@pytest.fixture
def log_file(tmp_path: Path) -> str:
    return str(tmp_path / "commits.sqlite")


@pytest.fixture
def log(log_file: str) -> SqliteCommitLog:
    return SqliteCommitLog(log_file, "table")
