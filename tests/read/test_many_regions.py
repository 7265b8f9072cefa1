"""A read of a table with many regions asks only for those that its keys can be in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import CorruptFileError, RepairError
from memwal_sql.read import recorded
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from planner.predicates.expr import Compare, Literal, Operand
from tests.each import each
from tests.maintain.life import create, manifests, rows
from tests.model.opened import Remote, opened_over
from tests.model.process import as_another_process
from tests.read.test_calls import function_calls
from tests.soak import SOAK
from tests.write.hooked_store import Call, HookedStore

REGIONS = 60
KEYS = [7, 8]
Read = Callable[[mw.Table], Any]


def make_region(table: mw.Table, like: RegionManifest, value: int) -> UUID:
    """An empty region with this value of the one field that `like` has."""
    (field,) = like.region_values or {}
    new = RegionManifest(
        UUID(int=value + 1), region_spec_id=like.region_spec_id, region_values={field: value}
    )
    types = {field: pa.int32()}
    return RegionManifests(open_store(table.uri), new.region_id, types).create(new).region_id


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[mw.Table, set[UUID]]:
    """A table whose regions are recorded, and the two of them that have rows."""
    table = create(tmp_path_factory.mktemp("many"), regions=REGIONS)
    with table.writer() as writer:
        writer.upsert(rows(KEYS[0], KEYS[-1], 1))
        writer.flush()
    written = manifests(table.uri)
    taken = {value for one in written.values() for value in (one.region_values or {}).values()}
    for value in set(range(REGIONS)) - taken:
        make_region(table, next(iter(written.values())), value)
    table.snapshot_regions()
    return table, set(written)


@each(
    "read, looked_at",
    [
        (lambda table: table.get(KEYS[0]).num_rows, 1),
        (lambda table: table.get(KEYS).num_rows, 2),
        (lambda table: table.count_rows(f"id = {KEYS[0]}"), 1),
        (lambda table: table.count_rows("id IN (7, 8)", consistency="manifest"), 2),
        (lambda table: table.count_rows(), REGIONS),
    ],
)
@each("wrap", [Remote, lambda store: store])
def test_the_first_read_asks_for_its_own_regions(
    many: tuple[mw.Table, set[UUID]], read: Read, looked_at: int, wrap: Callable[[Any], Any]
) -> None:
    table, written = many
    reader = opened_over(table.uri, lambda store: HookedStore(wrap(store)))
    asked: set[str] = set()

    def hook(operation: str, path: str, call: Call) -> Any:
        if path.startswith("_mem_wal/") and operation != "list_folders":
            asked.add(path.split("/")[1])
        return call()

    with as_another_process():
        reader.context.store.hook = hook
        assert read(reader) == min(looked_at, len(KEYS))
    assert len(asked) == looked_at
    if looked_at < REGIONS:
        assert asked <= {str(one) for one in written}


def test_regions_that_were_not_looked_at_count_as_pruned(
    many: tuple[mw.Table, set[UUID]],
) -> None:
    with as_another_process():
        collector = mw.open_table(many[0].uri).collector
        for key in KEYS * 2:
            found = collector.collect(
                "strong", [Compare(Operand("id"), "=", Literal(pa.int64(), key))]
            )
            assert (len(found.regions), found.regions_pruned) == (1, REGIONS - 1)


def test_reads_in_any_order_find_every_row(tmp_path: Path) -> None:
    """Some regions are made after the states of the others were recorded."""
    for seed in range(2 * SOAK):
        sys.stdout.write(f"seed {seed}\n")
        random = Random(seed)
        table = create(tmp_path / str(seed), regions=8)
        model: dict[int, int] = {}
        for step in range(4):
            with table.writer() as writer:
                for key in random.sample(range(40), 4):
                    writer.upsert(rows(key, key, step))
                    model[key] = step
            random.choice([table.snapshot_regions, table.merge, lambda: None])()
        with as_another_process():
            reader = opened_over(table.uri, random.choice([Remote, lambda store: store]))
            for _ in range(12):
                keys = random.sample(range(40), random.choice([1, 3]))
                expected = {key: model[key] for key in keys if key in model}
                if random.random() < 0.5:
                    found = reader.get(keys)
                else:
                    listed = ", ".join(map(str, keys))
                    found = reader.scan(filter=f"id IN ({listed})").read_all()
                read = dict(zip(found["id"].to_pylist(), found["val"].to_pylist(), strict=True))
                assert read == expected
            assert reader.count_rows() == len(model)


def test_a_twin_of_a_recorded_region_is_found(tmp_path: Path) -> None:
    table = create(tmp_path, regions=4)
    with table.writer() as writer:
        writer.upsert(rows(7, 7, 1))
    (one,) = manifests(table.uri).values()
    (value,) = (one.region_values or {}).values()
    table.snapshot_regions()
    make_region(table, one, int(str(value)))
    for read in (lambda reader: reader.get(7), lambda reader: reader.count_rows("id = 7")):
        with as_another_process(), pytest.raises(RepairError, match="the values"):
            read(mw.open_table(table.uri))


def test_a_damaged_record_stops_no_reader_of_the_present(
    many: tuple[mw.Table, set[UUID]],
) -> None:
    with as_another_process(), patch.object(recorded, "recorded_manifests") as read:
        read.side_effect = CorruptFileError("damaged")
        reader = mw.open_table(many[0].uri)
        assert reader.get(7).num_rows == 1
        assert reader.count_rows("id = 8") == 1


def test_a_call_lists_the_regions_once_for_all_that_it_needs(tmp_path: Path) -> None:
    table = opened_over(create(tmp_path, regions=REGIONS).uri, HookedStore)
    listings = [0]

    def hook(operation: str, path: str, call: Call) -> Any:
        listings[-1] += operation == "list_folders"
        return call()

    table.context.store.hook = hook
    with table.writer() as writer:
        calls: list[Callable[[], Any]] = [
            lambda: table.get(range(300)),  # twice, as a region may be made between two reads
            lambda: writer.upsert(rows(0, 299, 1)),
            lambda: writer.upsert(rows(0, 299, 2)),
        ]
        for call in calls:
            listings.append(0)
            call()
    assert listings == [0, 2, 1, 0]
    assert len(manifests(table.uri)) == REGIONS


@each(
    "read",
    [
        lambda table, key: table.get(key),
        lambda table, key: table.count_rows(f"id = {key}"),
        lambda table, key: table.count_rows(f"id = {key}", consistency="eventual"),
    ],
)
def test_the_next_region_is_read_as_if_there_were_few(read: Any, tmp_path: Path) -> None:
    """Once the record is read, which is done by the first query that asks for a region."""
    calls = []
    for number, regions in enumerate((10, 10, REGIONS)):  # the first fills caches
        table = create(tmp_path / str(number), regions=regions)
        with table.writer() as writer:
            writer.upsert(rows(0, 299, 1))
            writer.flush()
        table.snapshot_regions()
        counts = []
        with as_another_process():
            for _ in range(3):  # finalisers of other objects may run in one of them
                reader = mw.open_table(table.uri)
                read(reader, KEYS[0])
                counts.append(function_calls(partial(read, reader, KEYS[1])))
        calls.append(min(counts))
    assert calls[1] == calls[2]
