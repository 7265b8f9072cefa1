"""Which version of the base table is the newest, by one or two probes (protocol rules 14, 15)."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import memwal_sql as mw
from memwal_sql.state.base_table import BaseTracker, load_base
from memwal_sql.storage.objects.open import open_store
from tests.maintain.life import NOW, create, rows, values
from tests.model.faults import FaultyStore
from tests.model.opened import opened_over


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    return create(tmp_path)


def _commit(table: mw.Table, number: int) -> int:
    """A version with one row more, by plain Lance; its number."""
    schema = lance.dataset(table.uri).schema
    written = lance.write_dataset(
        rows(number, number, number).cast(schema), table.uri, mode="append"
    )
    return int(written.version)


def _clean_up(table: mw.Table) -> None:
    """Remove all versions but the newest and those with a tag."""
    lance.dataset(table.uri).cleanup_old_versions(
        older_than=NOW, delete_unverified=True, error_if_tagged_old_versions=False
    )


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("commits", [1, 2, 5])
def test_a_newer_version_is_found_whatever_was_cleaned_up_in_between(
    table: mw.Table, commits: int, tagged: bool
) -> None:
    """Where a tag keeps the version that is known, and a cleanup has removed the next one, both
    probes find what they did before: half a minute later all versions are looked at."""
    now = [0.0]
    base = load_base(table.context, lance.dataset(table.uri))
    tracker = BaseTracker(table.context, base, clock=lambda: now[0])
    if tagged:
        lance.dataset(table.uri).tags.create("kept", tracker.loaded.version)
    newest = max(_commit(table, number) for number in range(commits))
    _clean_up(table)
    missed = tagged and commits > 1
    now[0] = 30.0
    assert (tracker.latest().version < newest) == missed
    now[0] = 30.1
    assert tracker.latest().version == newest
    assert tracker.latest().dataset.count_rows() == commits


def test_queries_of_a_table_whose_version_has_a_tag_catch_up(table: mw.Table) -> None:
    now = [0.0]
    table.tracker._clock = lambda: now[0]
    table.tracker._checked = 0.0
    lance.dataset(table.uri).tags.create("kept", table.version)
    for number in range(3):
        _commit(table, number)
    _clean_up(table)
    now[0] = 31.0
    assert values(table) == {0: 0, 1: 1, 2: 2}


def test_looking_again_costs_two_probes(table: mw.Table) -> None:
    stores = [FaultyStore(open_store(table.uri))]
    tracker = opened_over(table.uri, lambda inner: stores[0]).tracker
    stores[0].calls.clear()
    for _ in range(3):
        tracker.latest()
    assert stores[0].calls == {"exists": 6}
