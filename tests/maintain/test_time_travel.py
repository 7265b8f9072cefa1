"""Tables as they were: by version and by time (protocol rule 18)."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.resident.store import Scope
from memwal_sql.storage.base.versions import base_versions
from memwal_sql.storage.objects.open import open_store
from tests.each import each
from tests.maintain.life import NOW, collect, create, flush, merge_all, rows, values
from tests.model.writing import session_of


def _committed(table: mw.Table, version: int) -> datetime:
    found = base_versions(open_store(table.uri), Scope())
    (seconds,) = [one.timestamp for one in found if one.version == version]
    return datetime.fromtimestamp(seconds, UTC)


def test_every_recorded_version_reads_as_it_was_whatever_was_collected_since(
    tmp_path: Path,
) -> None:
    table = create(tmp_path, regions=2)
    states = {}
    for n in range(1, 5):
        flush(table, rows(n, n + 5, n))
        if n % 2:
            merge_all(table)
        states[table.snapshot_regions()] = values(table)
        collect(table)
    for version, expected in states.items():
        then = mw.open_table(table.uri, version=version)
        assert values(then) == expected
        assert then.get([4]).to_pylist() == (
            [{"id": 4, "val": expected[4]}] if 4 in expected else []
        )
        context = session_of("then", then)
        assert context.sql("SELECT count(*) AS n FROM then").to_pylist() == [{"n": len(expected)}]
        assert not then.reads_base_alone


def test_a_time_reads_the_version_that_was_the_newest_then(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 3, 1))
    first = table.snapshot_regions()
    flush(table, rows(0, 3, 2))
    second = table.snapshot_regions()
    for version, val in ((first, 1), (second, 2)):
        moment = _committed(table, version)
        for timestamp in (moment, moment.isoformat(), moment.astimezone(_east()).isoformat()):
            found = mw.open_table(table.uri, timestamp=_up(timestamp))
            assert (found.version, values(found)) == (version, dict.fromkeys(range(4), val))
    almost = _committed(table, second) - timedelta(microseconds=10)
    assert mw.open_table(table.uri, timestamp=almost).version == first
    assert mw.open_table(table.uri, timestamp=datetime.now(UTC)).version == second


def _east() -> Any:
    return datetime.now().astimezone().tzinfo


def _up(timestamp: datetime | str) -> datetime | str:
    """Microseconds cut off what Lance stores, so go one up."""
    later = timedelta(microseconds=1)
    if isinstance(timestamp, str):
        return (datetime.fromisoformat(timestamp) + later).isoformat()
    return timestamp + later


@each("timestamp", ["yesterday", "2026-01-01T00:00:00", datetime(2026, 1, 1), 1_700_000_000])
def test_a_time_that_is_none_is_refused(tmp_path: Path, timestamp: Any) -> None:
    table = create(tmp_path)
    with pytest.raises(mw.InvalidCallError, match="give a datetime with a time zone"):
        mw.open_table(table.uri, timestamp=timestamp)


@each("version", [0, -1, 2**63, 2**64, 2**80, 1.0, True, b"1"])
def test_a_version_that_can_be_none_is_refused(tmp_path: Path, version: Any) -> None:
    table = create(tmp_path)
    for call in (partial(mw.open_table, table.uri), table.as_of, table.restore):
        with pytest.raises(mw.InvalidCallError, match=rf"version={version!r}"):
            call(version)


def test_a_time_of_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(mw.InvalidCallError, match="is not a Lance table"):
        mw.open_table(tmp_path / "none", timestamp=datetime.now(UTC))


def test_a_version_without_a_record_says_that_it_reads_as_the_base_alone(tmp_path: Path) -> None:
    """Protocol rule 18."""
    table = create(tmp_path)
    flush(table, rows(0, 3, 1))
    merge_all(table)
    merged = lance.dataset(table.uri).version
    flush(table, rows(0, 9, 2))
    with pytest.warns(mw.UnrecordedVersionWarning, match="base table alone"):
        then = mw.open_table(table.uri, version=merged)
    assert then.reads_base_alone
    assert values(then) == dict.fromkeys(range(4), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not mw.open_table(table.uri).reads_base_alone
        assert not mw.open_table(table.uri, version=table.snapshot_regions()).reads_base_alone


def test_a_version_from_before_the_table_was_enabled_says_how_to_read_it(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [1, 2]}), uri)
    table = mw.enable(uri, primary_key="id")
    for version in range(1, table.version):
        with pytest.raises(mw.InvalidCallError, match=rf"version {version} .*before.*enabled"):
            mw.open_table(uri, version=version)


def test_a_version_that_lance_cleaned_up_is_not_said_to_work_again(tmp_path: Path) -> None:
    table = create(tmp_path)
    for val in (1, 2):
        flush(table, rows(0, 5, val))
        merge_all(table)
        if val == 1:
            old = mw.open_table(table.uri, version=table.snapshot_regions())
    collect(table, versions_older_than=NOW)
    with pytest.raises(mw.SourceGoneError, match="one of that version never will"):
        values(old)
    assert values(table) == dict.fromkeys(range(6), 2)
