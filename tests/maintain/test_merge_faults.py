"""Merging what is damaged, missing or of another shape, and on a full disk (issue "Bad input and
faults"): a clear error and a table that still reads, or the right result."""

from __future__ import annotations

import resource
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain.details import change_details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.paths import generation_folder
from memwal_sql.storage.region.versions import RegionManifests
from tests.each import each
from tests.maintain.merging_tables import (
    GENERATIONS,
    SCHEMA,
    expected,
    in_base,
    make_table,
    progress_of,
    rows_of,
    write_generations,
)
from tests.model.merging import manifests
from tests.model.process import forks


def _cut(pattern: str, length: int) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        for file in folder.glob(pattern):
            file.write_bytes(file.read_bytes()[:length])

    return cut


def _replaced(columns: dict[str, Any]) -> Callable[[Path], None]:
    def replace_table(folder: Path) -> None:
        shutil.rmtree(folder)
        lance.write_dataset(pa.table(columns), folder)

    return replace_table


@each(
    "spoil",
    [
        shutil.rmtree,
        _cut("data/*", 40),
        _cut("_versions/*.manifest", 10),
        _replaced({"other": [1], "val": [2], "_tombstone": [False]}),
        _replaced({"id": ["x"], "val": [2], "_tombstone": [False]}),
        _replaced({"id": [1], "val": [2]}),
        _replaced({"id": [1], "val": [[1, 2]], "_tombstone": [False]}),
    ],
)
def test_a_spoilt_generation_is_named_and_nothing_is_skipped(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """Generation 1 is merged, generation 2 is named by the error, and the base holds its state."""
    table = make_table(tmp_path)
    ((region, manifest),) = manifests(table.uri).items()
    flushed = next(one for one in manifest.flushed_generations if one.generation == 2)
    folder = Path(table.uri) / generation_folder(region, flushed.path)
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    spoil(folder)
    with pytest.raises(mw.RepairError, match=folder.name):
        mw.open_table(table.uri).merge()
    assert progress_of(table.uri) == {str(region): 1}
    assert in_base(table.uri) == expected(GENERATIONS[:1])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.move(copy, folder)
    assert table.merge() == 2
    assert in_base(table.uri) == expected()


def _merge_without_room(uri: str, link: Any) -> None:
    table = mw.open_table(uri)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
    try:
        link.send(f"merged {table.merge()}")
    except mw.MemWalError as error:
        link.send(f"{type(error).__name__} {error}")


def test_a_full_disk_is_an_error_and_the_table_goes_on(tmp_path: Path) -> None:
    """Files that may not grow fail as a full disk does: in the middle of the rows."""
    rows = {n: n * 7919 for n in range(40_000)}
    table = make_table(tmp_path, [*GENERATIONS, (rows, [])])
    here, there = forks().Pipe()
    child = forks().Process(target=_merge_without_room, args=(table.uri, there))
    child.start()
    said = here.recv()
    child.join(120)
    assert said.startswith("OutcomeUnknownError"), said
    assert table.uri in said
    (region,) = manifests(table.uri)
    assert progress_of(table.uri) == {str(region): 3}
    assert in_base(table.uri) == expected()
    assert rows_of(mw.open_table(table.uri)) == rows
    assert table.merge() == 1
    assert in_base(table.uri) == rows


def test_an_unknown_maintained_index_holds_up_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    change_details(
        table.context,
        "test",
        lambda rewrite: replace(rewrite.details, maintained_indexes=("no_such_index",)),
    )
    assert table.merge() == 3
    assert table.build_indexes() == ["id_idx"]
    assert in_base(table.uri) == rows_of(table) == expected()


def test_a_key_index_that_is_behind_or_remapped_loses_no_update(tmp_path: Path) -> None:
    """lance-format/lance 7596: an indexed merge_insert updates nothing."""
    schema = pa.schema([("val", pa.int64()), ("id", pa.int64())])
    table = make_table(tmp_path, GENERATIONS[:1], schema=schema)
    table.merge()
    for step in (table.build_indexes, _compact(table), table.build_indexes):
        write_generations(table, GENERATIONS[1:])
        table.merge()
        step()
        assert in_base(table.uri) == rows_of(table) == expected()


def test_a_key_index_that_is_remapped_later_doubles_no_row(tmp_path: Path) -> None:
    """A merge-insert that asks the index inserts key 8 once more here (pylance 14.0.2): the index
    was to be remapped after a compaction, and another compaction came before that."""
    live: dict[int, int] = {}
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")

    def merge(*keys: int) -> None:
        rows = dict.fromkeys(keys, len(live) + 10)
        write_generations(table, [(rows, [])])
        live.update(rows)
        assert table.merge() == 1
        assert in_base(table.uri) == rows_of(table) == live
        for key, val in live.items():
            assert table.get([key])["val"].to_pylist() == [val]
            assert table.scan(filter=f"id = {key}").read_all()["val"].to_pylist() == [val]

    merge(1)
    merge(6, 8)
    lance.dataset(table.uri).optimize.optimize_indices()
    lance.dataset(table.uri).optimize.compact_files(defer_index_remap=True)
    merge(6)
    lance.dataset(table.uri).optimize.compact_files()
    merge(8)


def _compact(table: mw.Table) -> Any:
    return lambda: lance.dataset(table.uri).optimize.compact_files()


@each("deletes", [[], [1]])
@each("missing", [{1}, {2}, {3}, {4}, {2, 3}, {2, 4}])
def test_a_gap_in_the_generations_is_an_error(
    tmp_path: Path, missing: set[int], deletes: list[int]
) -> None:
    """Protocol rule 20: generation = merged + 1 only, also among those that are merged together.
    What is below the gap is merged, nothing above it."""
    generations = [({1: n, 10 * n: n}, deletes if n == 3 else []) for n in range(1, 5)]
    table = make_table(tmp_path, generations)
    (region,) = manifests(table.uri)
    latest = RegionManifests(open_store(table.uri), region)
    manifest = latest.latest()
    kept = [one for one in manifest.flushed_generations if one.generation not in missing]
    latest.commit(manifest, flushed_generations=tuple(kept))
    first = min(missing)
    for _ in range(2):
        with pytest.raises(mw.RepairError, match=f"does not list generation {first}, "):
            mw.open_table(table.uri).merge()
        assert progress_of(table.uri) == ({str(region): first - 1} if first > 1 else {})
        assert in_base(table.uri) == expected(generations[: first - 1])
