"""Merges and index commits cost no query anything: others read the version before meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import background_by
from exec_nodes.resident import keys as resident_keys
from exec_nodes.resident.admission import Admission
from exec_nodes.sources import lance_source, lance_version
from memwal_sql.errors import ReopenError
from memwal_sql.read.served_version import Served
from memwal_sql.storage.base.memwal_index import FoundDetails, commit_details, read_details_at
from memwal_sql.storage.objects.open import open_store
from tests.exec_nodes.resident.reads import no_reads
from tests.model.resident import never
from tests.read.life import KEYS, Life, fresh, seen
from tests.soak import SOAK

NO_TIME = timedelta(0)
QUERY = [0.5, -0.5, 0.1, 0.0]

Pending = list[Callable[[], object]]


def is_warm_up(call: Callable[[], object]) -> bool:
    return isinstance(call, partial) and call.func.__name__ == "_follow"


@pytest.fixture
def pending(within: Any) -> Pending:
    """What waits to be done in the background; it is done by whoever calls it."""
    waiting: Pending = []
    within(Served.set(least_rows=0))
    within(background_by(lambda call: waiting.append(call) if is_warm_up(call) else call()))
    return waiting


@pytest.fixture
def life(tmp_path: Path, pending: Pending) -> Life:
    return Life(tmp_path, 5)


def warm_up(pending: Pending) -> None:
    while pending:
        pending.pop(0)()


def base_version(table: mw.Table) -> int:
    """The version that a query reads."""
    base = table.collector.base_for("strong").source
    assert isinstance(base, lance_source.LanceSource)
    return int(base.dataset.version)


@pytest.mark.parametrize("seed", range(SOAK))
def test_any_history_reads_as_if_the_newest_version_was_read(
    tmp_path: Path, seed: int, pending: Pending, within: Any
) -> None:
    within(Admission.set(lookup=1 << 30))  # keys are kept at once
    life = Life(tmp_path, seed)
    reader, behind = mw.open_table(life.uri), 0
    for number in range(10):
        what = life.step()
        keys = life.random.sample(range(KEYS + 500), 10)
        query = life.numbers.normal(size=4).tolist()
        expected = fresh(life.uri, None, keys, query)
        for _ in range(2):
            assert seen(reader, keys, query) == expected, f"seed {seed}, step {number} ({what})"
            behind += base_version(reader) < lance.dataset(life.uri).version
            if life.random.random() < 0.5:
                warm_up(pending)
    assert behind > 2


@pytest.mark.parametrize(
    "change",
    [
        Life.write_and_merge,
        Life.compact,
        lambda life: life.table.compact(),
        lambda life: life.table.compact(fragments=2),
    ],
    ids=["merge", "compaction of Lance", "of all fragments", "of some"],
)
def test_nothing_is_read_of_a_new_version_after_the_warm_up(
    life: Life, pending: Pending, within: Any, change: Callable[[Life], object]
) -> None:
    within(Admission.set(lookup=1 << 30))
    reader = mw.open_table(life.uri)
    keys = list(range(0, KEYS, 100))
    for _ in range(3):
        seen(reader, keys, QUERY)
    before = base_version(reader)
    change(life)
    assert seen(reader, keys, QUERY) == fresh(life.uri, None, keys, QUERY)
    assert base_version(reader) == before
    warm_up(pending)
    assert base_version(reader) == lance.dataset(life.uri).version > before
    with ExitStack() as stack:
        for place, name in (
            (lance_version, "every_value"),
            (lance_source, "scan_dataset"),
            (lance_source, "read_table"),
            (lance_source, "take_rows"),
            (resident_keys.KeyReader, "build"),
        ):
            stack.enter_context(patch.object(place, name, side_effect=AssertionError))
        stack.enter_context(no_reads())
        found = seen(reader, keys, QUERY)
    assert found == fresh(life.uri, None, keys, QUERY)


def test_what_others_commit_is_seen_at_once(life: Life) -> None:
    reader = mw.open_table(life.uri)
    life.write_and_merge()
    for change in (life.delete, life.append, life.restore, life.restore):
        seen(reader, [1, 2], QUERY)
        change()
        assert seen(reader, [1, 2], QUERY) == fresh(life.uri, None, [1, 2], QUERY)
        assert base_version(reader) == lance.dataset(life.uri).version


def test_a_small_table_is_read_at_its_newest_version(tmp_path: Path, within: Any) -> None:
    within(background_by(lambda call: pytest.fail() if is_warm_up(call) else call()))
    life = Life(tmp_path, 1)
    reader = mw.open_table(life.uri)
    seen(reader, [1], QUERY)
    life.write_and_merge()
    seen(reader, [1], QUERY)
    assert base_version(reader) == lance.dataset(life.uri).version


@pytest.mark.parametrize("how", ["collected", "lost"])
def test_generations_that_are_gone_are_not_missed(life: Life, how: str) -> None:
    reader = mw.open_table(life.uri)
    seen(reader, [1], QUERY)
    life.write_and_merge()
    if how == "collected":
        life.table.collect_garbage(older_than=NO_TIME, versions_older_than=NO_TIME)
    else:
        for folder in Path(life.uri, "_mem_wal").glob("*/*_gen_*"):
            shutil.rmtree(folder)
    for read in (
        lambda: reader.scan().read_all().num_rows,
        lambda: reader.get([1, 2]).num_rows,
        lambda: reader.vector_search("vec", QUERY, 3).num_rows,
    ):
        assert read()
    assert base_version(reader) == lance.dataset(life.uri).version


def test_a_version_whose_files_were_cleaned_up_is_not_read(life: Life) -> None:
    """Its generations are listed still, and its rows in memory are not all that it needs."""
    reader = mw.open_table(life.uri)
    seen(reader, [1], QUERY)
    life.write_and_merge()
    assert seen(reader, [1], QUERY) == fresh(life.uri, None, [1], QUERY)
    lance.dataset(life.uri).cleanup_old_versions(older_than=NO_TIME)
    newest = lance.dataset(life.uri).version
    assert base_version(reader) == newest
    assert reader.scan(columns=["vec"]).read_all().num_rows == reader.scan().read_all().num_rows


def test_another_metric_or_analyzer_is_that_of_the_next_query(
    life: Life, pending: Pending, within: Any
) -> None:
    within(Admission.set(small=-1))
    reader = mw.open_table(life.uri)
    for metric in ("cosine", "l2"):
        seen(reader, [1], QUERY)
        life.table.create_index(
            "vec", "IVF_FLAT", num_partitions=2, metric=metric, name="vec_idx", replace=True
        )
        assert seen(reader, [1], QUERY) == fresh(life.uri, None, [1], QUERY)
        life.write_and_merge()
        seen(reader, [1], QUERY)
        warm_up(pending)
        seen(reader, [1], QUERY)
        before = base_version(reader)
        assert life.table.build_indexes()
        assert seen(reader, [1], QUERY) == fresh(life.uri, None, [1], QUERY)
        assert base_version(reader) == before  # the same index, for more rows
        warm_up(pending)


def test_a_thread_that_outlives_the_main_one_reads_on(life: Life, within: Any) -> None:
    """Python starts nothing in the background any more then."""
    within(background_by(never))
    reader = mw.open_table(life.uri)
    for _ in range(2):
        seen(reader, [1], QUERY)
        life.write_and_merge()
        assert seen(reader, [1], QUERY) == fresh(life.uri, None, [1], QUERY)
        assert base_version(reader) == lance.dataset(life.uri).version


def test_a_table_made_again_at_the_same_place_is_another_one(life: Life, tmp_path: Path) -> None:
    life.write_and_merge()
    reader = mw.open_table(life.uri)
    seen(reader, [1], QUERY)
    read = base_version(reader)
    shutil.rmtree(life.uri)
    again = Life(tmp_path, 6)
    while lance.dataset(again.uri).version <= read:
        again.write_and_merge()
    for _ in range(2):
        with pytest.raises(ReopenError):
            reader.scan().read_all()
        with pytest.raises(ReopenError):
            reader.get([1])


def _restore_folder(uri: str, copy: Path) -> None:
    shutil.rmtree(uri)
    shutil.copytree(copy, uri)


@pytest.mark.parametrize("ahead", [False, True])
def test_merges_over_other_rows_under_the_same_number_are_not_passed_over(
    life: Life, tmp_path: Path, pending: Pending, ahead: bool
) -> None:
    """The folder went back to a copy and other rows were committed under the number that is read,
    or, `ahead`, under that of the newest version that showed the same rows as it."""
    life.write()
    if ahead:
        reader = mw.open_table(life.uri)
        seen(reader, [1], QUERY)
        read = base_version(reader)
    shutil.copytree(life.uri, copy := tmp_path / "copy")
    if ahead:
        life.table.merge()
    else:
        life.append()
        reader = mw.open_table(life.uri)
        read = lance.dataset(life.uri).version
    seen(reader, [1], QUERY)
    assert base_version(reader) == read
    known = lance.dataset(life.uri).version
    _restore_folder(life.uri, copy)
    while lance.dataset(life.uri).version < known:
        life.append()
    mw.open_table(life.uri).merge()
    assert lance.dataset(life.uri).version > known
    assert seen(reader, [1], QUERY) == fresh(life.uri, None, [1], QUERY)
    assert base_version(reader) == lance.dataset(life.uri).version


def test_a_version_is_not_waited_for_without_end(life: Life, pending: Pending) -> None:
    now = [0.0]
    reader = mw.open_table(life.uri)
    reader.collector.versions.served._clock = lambda: now[0]
    seen(reader, [1], QUERY)
    before = base_version(reader)
    life.write_and_merge()
    assert base_version(reader) == before
    now[0] += 6
    life.write_and_merge()
    assert base_version(reader) == before
    assert len(pending) == 1  # one at a time
    now[0] += 6
    newest = base_version(reader)
    assert newest == lance.dataset(life.uri).version
    warm_up(pending)  # too late
    assert base_version(reader) == newest


def test_a_warm_up_that_fails_keeps_nobody(life: Life, pending: Pending) -> None:
    reader = mw.open_table(life.uri)
    seen(reader, [1], QUERY)
    life.write_and_merge()
    seen(reader, [1], QUERY)
    with patch.object(lance_source.LanceSource, "extend", side_effect=OSError("no more files")):
        warm_up(pending)
    assert seen(reader, [1], QUERY) == fresh(life.uri, None, [1], QUERY)
    assert base_version(reader) == lance.dataset(life.uri).version


def test_which_commits_leave_what_readers_see(life: Life) -> None:
    store = open_store(life.uri)

    def details() -> FoundDetails:
        found = read_details_at(store, lance.dataset(life.uri).version)
        assert found is not None
        return found

    def shows(change: Callable[[], object]) -> bool:
        before = details()
        change()
        return details().has_same_rows_as(before)

    assert shows(life.write_and_merge)  # ends with a commit of the regions' record
    assert not shows(lambda: life.table.create_index("val", "BTREE"))
    life.write_and_merge()
    assert shows(life.table.build_indexes)
    dataset = lance.dataset(life.uri)
    merge = dataset.merge_insert("id").when_matched_update_all()
    assert not shows(lambda: merge.execute(life.rows([1]).cast(dataset.schema)))
    assert not shows(lambda: lance.dataset(life.uri).update({"val": "'x'"}, where="id = 2"))
    assert not shows(lambda: lance.dataset(life.uri).delete("id = 3"))
    assert not shows(life.append)
    version = lance.dataset(life.uri).version
    life.write_and_merge()
    # A restore may go forward again: progress grows, and rows are others all the same.
    ahead = lance.dataset(life.uri).version
    lance.dataset(life.uri, version=version).restore()
    assert not shows(lambda: lance.dataset(life.uri, version=ahead).restore())
    spec = {"spec_id": 7, "fields": []}
    details_now = details().details
    other = replace(details_now, region_specs=(*details_now.region_specs, spec))
    assert not shows(lambda: commit_details(lance.dataset(life.uri), other))


def test_a_lookup_has_the_columns_of_the_version_that_it_reads(life: Life) -> None:
    """Another thread may take note of a newer one meanwhile."""
    reader = mw.open_table(life.uri)
    served_version = reader.collector.versions.served
    before = served_version.checked()
    lance.dataset(life.uri).alter_columns({"path": "val", "name": "other"})

    def served() -> object:
        reader.tracker.reload()
        return before

    with patch.object(served_version, "checked", served):
        found = reader.get([1])
    assert found.schema.names == ["id", "val", "vec"]
    assert reader.get([1]).schema.names == ["id", "other", "vec"]
