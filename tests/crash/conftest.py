"""Processes for the crash tests."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest


@pytest.fixture(scope="package")
def context() -> Any:
    """Processes that start in a few milliseconds, with everything imported."""
    found = multiprocessing.get_context("forkserver")
    children = ("writing_child", "merging_child", "racer")
    found.set_forkserver_preload([f"tests.crash.{name}" for name in children])
    return found
