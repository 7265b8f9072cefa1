"""Processes for the crash tests."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest

from memwal_sql.storage.objects.concurrent import ReadWindow
from memwal_sql.storage.objects.local import LocalStore


@pytest.fixture(scope="package")
def context() -> Any:
    """Processes that start in a few milliseconds, with everything imported."""
    found = multiprocessing.get_context("forkserver")
    children = ("writing_child", "merging_child", "racer")
    found.set_forkserver_preload([f"tests.crash.{name}" for name in children])
    return found


@pytest.fixture(params=["local", "remote"])
def kind(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    within: Callable[[Any], Any],
) -> str:
    """What a folder is taken for: a disk, or a remote store, whose requests go out side by side."""
    if request.param == "remote":
        monkeypatch.setattr(LocalStore, "remote", True)
        within(ReadWindow.set(seconds=0.0))
    return str(request.param)
