"""Processes, stores and a table for the crash tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import lance
import pytest

import memwal_sql as mw
from memwal_sql.storage.objects.concurrent import ReadWindow
from memwal_sql.storage.objects.local import LocalStore
from tests.crash.script import base_rows
from tests.model.process import forks
from tests.soak import IS_SOAK


@pytest.fixture(scope="package")
def context() -> Any:
    """Processes that start in a few milliseconds, with everything imported."""
    return forks()


@pytest.fixture(scope="package")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table to copy, with the rows of `script`: making one takes longer than killing a writer."""
    folder = tmp_path_factory.mktemp("template") / "table"
    lance.write_dataset(base_rows(), str(folder))
    mw.enable(str(folder), primary_key="id")
    return folder


KINDS = ("local", "remote")


def with_kinds(names: str, cases: Iterable[Any]) -> pytest.MarkDecorator:
    """Each case over each kind of store in a soak, else over one of them in turns."""
    pairs = product(cases, KINDS) if IS_SOAK else zip(cases, cycle(KINDS), strict=False)
    table = [(*(case if isinstance(case, tuple) else (case,)), kind) for case, kind in pairs]
    return pytest.mark.parametrize(f"{names}, kind", table, indirect=["kind"])


@pytest.fixture(params=KINDS)
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
