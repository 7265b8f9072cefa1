"""One table has one region for the same values, whoever of LanceDB and us makes it first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import lancedb as lancedb_package
import pyarrow as pa
import pytest
from lancedb._lancedb import LsmWriteSpec

import memwal_sql as mw
from exec_nodes.lance.stored_generation import open_generation
from memwal_sql.bulk.rows import RowForm
from memwal_sql.read import left_out_values, registry
from memwal_sql.state.base_table import BaseTable
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.values import value_types
from memwal_sql.storage.region.versions import RegionManifests
from planner.regions.field import RegionField
from tests.each import each
from tests.interop.lancedb_client import (
    SCHEMA,
    Handle,
    Rows,
    by_key,
    create,
    create_emptied,
    folder,
    made_by_us,
    open_handle,
    rows,
)
from tests.model.merging import manifests
from tests.model.opened import opened_over
from tests.model.racing import race
from tests.model.writing import session_of, upsert_rows
from tests.planner.predicates.said import Said
from tests.write.hooked_store import Call, HookedStore

Field = Callable[[str], RegionField]
SPECS = {
    "unsharded": (LsmWriteSpec.unsharded(), mw.unsharded()),
    "bucket": (LsmWriteSpec.bucket("id", 4), mw.lance_bucket("id", 4)),
    "identity": (LsmWriteSpec.identity("id"), mw.identity("id")),
}
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 0, 127]),
    "int16": (pa.int16(), [-3, 300]),
    "int32": (pa.int32(), [-(2**31), 5]),
    "int64": (pa.int64(), [-(2**63), -1, 2**63 - 1]),
    "uint8": (pa.uint8(), [0, 255]),
    "uint16": (pa.uint16(), [0, 2**16 - 1]),
    "uint32": (pa.uint32(), [0, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 2**64 - 1]),
    "string": (pa.string(), ["", "a", "tail", "längere"]),
    "large_string": (pa.large_string(), ["", "日本語"]),
    "bool": (pa.bool_(), [False, True]),
}
# The others are hashed as one of these.
HASHED = ("int8", "uint32", "int64", "string", "bool")


def read(table: Any) -> Rows:
    return by_key(table.scan().read_all())


def schema_of(kind: str) -> pa.Schema:
    return pa.schema([pa.field("id", TYPES[kind][0], False), pa.field("v", pa.string())])


@each(
    "how, kind",
    [
        *[(mw.identity, kind) for kind in TYPES],
        *[(partial(mw.lance_bucket, num_buckets=3), kind) for kind in HASHED],
    ],
)
def test_lancedb_finds_our_regions_for_keys_of_every_type(
    how: Field, kind: str, tmp_path: Path
) -> None:
    schema = schema_of(kind)
    keys = TYPES[kind][1]
    table = made_by_us(tmp_path, how("id"), schema)
    upsert_rows(table, rows(dict.fromkeys(keys, "ours"), schema))
    ids = set(manifests(table.uri))
    handle = open_handle(tmp_path)
    for key in keys:
        handle.upsert({key: "theirs"}, schema)
        handle.close()
    assert set(manifests(table.uri)) == ids
    assert read(table) == dict.fromkeys(keys, "theirs") == handle.read()


@pytest.mark.parametrize("spec", SPECS)
def test_regions_of_lancedb_are_pruned_and_looked_up_by_their_values(
    spec: str, tmp_path: Path
) -> None:
    handle = create(tmp_path, SPECS[spec][0], {1: "base"})
    for key in range(8):
        handle.upsert({key: f"v{key}"})
        handle.close()
    table = mw.open_table(folder(tmp_path))
    regions = table.snapshot().regions
    assert all(region.values is not None for region in regions)
    session = session_of("t", table)
    for key in range(8):
        kept = table.snapshot("strong", Said(table.schema)(f"id = {key}")).regions
        assert len(kept) == 1
        assert session.sql(f"SELECT v FROM t WHERE id = {key}").to_pylist() == [{"v": f"v{key}"}]
        assert by_key(table.get([key])) == {key: f"v{key}"}
    assert {one.check for one in table.check()} <= {"leftovers"}


@pytest.mark.parametrize("spec", SPECS)
def test_a_claim_writes_the_values_down_and_lancedb_keeps_them(spec: str, tmp_path: Path) -> None:
    handle = create(tmp_path, SPECS[spec][0])
    handle.upsert({5: "theirs"})
    table = mw.open_table(folder(tmp_path))
    upsert_rows(table, rows({5: "ours"}))
    with pytest.raises(RuntimeError, match="fenced"):
        handle.close()
    handle.upsert({5: "theirs again"})
    handle.close()
    (region,) = table.snapshot().regions
    manifest = RegionManifests(open_store(table.uri), region.region_id).latest()
    assert manifest.writer_epoch == 3
    assert region.values is not None
    (known,) = table.info.region_specs
    typed = RegionManifests(open_store(table.uri), region.region_id, value_types(known))
    assert typed.latest().region_values == region.values
    assert read(mw.open_table(table.uri)) == {5: "theirs again"} == open_handle(tmp_path).read()


def test_an_empty_region_of_lancedb_s_is_written_by_its_id(tmp_path: Path) -> None:
    """Its manifest leaves the value out, and no row tells it any more."""
    handle, table = create_emptied(tmp_path, (1, 2))
    ids = set(manifests(table.uri))
    assert not any(one.flushed_generations for one in manifests(table.uri).values())
    again = mw.open_table(table.uri)
    assert again.check().ok
    upsert_rows(again, rows({1: "ours", 3: "ours"}))
    assert ids < set(manifests(table.uri)) and len(manifests(table.uri)) == 3
    assert read(mw.open_table(table.uri)) == {1: "ours", 2: "theirs", 3: "ours"}
    handle.upsert({2: "theirs again"})
    assert read(again) == {1: "ours", 2: "theirs again", 3: "ours"}
    assert again.get([2])["v"].to_pylist() == ["theirs again"]


@pytest.mark.parametrize("where", ["wal", "generation"])
def test_values_that_the_store_could_not_give_are_asked_for_again(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = create(tmp_path, LsmWriteSpec.identity("id"))
    handle.upsert({5: "theirs"})
    if where == "generation":
        handle.close()
    down = True

    def refused() -> None:
        if down:
            raise mw.StoreUnavailableError("out of reach")

    def hook(operation: str, path: str, call: Call) -> Any:
        if path.endswith(".arrow"):
            refused()
        return call()

    def opened(*args: Any) -> Any:
        refused()
        return open_generation(*args)

    monkeypatch.setattr(left_out_values, "open_generation", opened)
    table = opened_over(folder(tmp_path), lambda store: HookedStore(store, hook))
    for _ in range(2):
        with pytest.raises(mw.StoreUnavailableError):
            table.snapshot("manifest")
    down = False
    (region,) = table.snapshot("manifest").regions
    assert list((region.values or {}).values()) == [5]
    assert read(table) == {5: "theirs"}


@pytest.mark.parametrize("flushed", [False, True])
def test_a_region_without_values_costs_no_request_until_it_has_rows(
    flushed: bool, tmp_path: Path
) -> None:
    """The usual state of LanceDB's identity regions that were merged and collected."""
    handle, table = create_emptied(tmp_path, range(12))
    asked: list[tuple[str, str]] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        asked.append((operation, path))
        return call()

    reader = opened_over(table.uri, lambda store: HookedStore(store, hook))
    kinds = {"strong": 2, "manifest": 0}
    for consistency, probes in kinds.items():
        reader.snapshot(consistency)
        asked.clear()
        reader.snapshot(consistency)
        assert {one for one, _ in asked} == {"exists", "list_folders"}
        assert len([path for _, path in asked if "/manifest/" in path]) == 12 * 2
        assert len([path for _, path in asked if "/wal/" in path]) == 12 * probes
    asked.clear()
    assert by_key(reader.get([5])) == {5: "theirs"}
    assert {one for one, _ in asked} == {"exists", "list_folders"}
    for key in range(12):  # more than a snapshot has attempts
        handle.upsert({key: "again"})
        if flushed:
            handle.close()
            handle = open_handle(tmp_path)
        else:
            handle.close()
    assert by_key(reader.get([5])) == {5: "again"}
    assert all(one.values is not None for one in reader.snapshot("manifest").regions)
    assert read(reader) == dict.fromkeys(range(12), "again")


def test_a_region_whose_values_another_thread_finds_makes_none_be_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle, table = create_emptied(tmp_path, (1, 2, 3))
    reader = mw.open_table(table.uri)
    assert [one.values for one in reader.snapshot().regions] == [None] * 3
    for key in (1, 2, 3):
        handle.upsert({key: "again"})
        handle.close()
    asked: list[object] = []

    def also_there(base: BaseTable, manifest: RegionManifest) -> bool:
        asked.append(manifest.region_id)
        if len(asked) == 2:  # the first is asked whether it is worth to look
            reader.snapshot()  # as another thread does meanwhile
        return left_out_values.may_come(base, manifest)

    monkeypatch.setattr(registry, "may_come", also_there)
    found = reader.snapshot().regions
    assert len(asked) == 8 and {asked[1], *asked[6:]} == {*manifests(table.uri)}
    assert all(one.values for one in found) and len(found) == 3


@pytest.mark.parametrize("spec", SPECS)
def test_one_region_is_made_when_both_write_first_at_once(spec: str, tmp_path: Path) -> None:
    theirs, mine = SPECS[spec]
    key = 5
    for number in range(6):
        path = tmp_path / str(number)
        if number % 2:
            create(path, theirs)
        else:
            made_by_us(path, mine)
        table = mw.open_table(folder(path))
        handle = open_handle(path)
        writer = table.writer()
        done: Rows = {}

        def ours(writer: Any = writer, done: Rows = done) -> None:
            with writer, suppress(mw.FencedError, mw.RetryError):
                writer.upsert(rows({key: "ours"}))
                done["ours"] = key

        def lancedb(handle: Handle = handle, done: Rows = done) -> None:
            try:
                handle.upsert({key: "theirs"})
            except RuntimeError as error:
                assert "epoch" in str(error)  # fenced, or its claim lost
                return
            done["theirs"] = key

        race(ours, lancedb)
        assert len(manifests(table.uri)) == 1
        found = read(mw.open_table(table.uri))
        assert done and found[key] in done, (number, found, done)


def test_a_column_outside_of_the_key_divides_a_table_that_is_read_and_not_written(
    tmp_path: Path,
) -> None:
    """Protocol rule 10. LanceDB allows it; a key is looked for in all regions."""
    schema = pa.schema([*SCHEMA, pa.field("region", pa.string(), False)])
    db = lancedb_package.connect(tmp_path)
    base = pa.table({"id": [1], "v": ["base"], "region": ["eu"]}, schema=schema)
    made = db.create_table("t", base, schema=schema)
    made.set_unenforced_primary_key("id")
    made.set_lsm_write_spec(LsmWriteSpec.identity("region"))
    handle = Handle(made)
    for key, region in ((1, "eu"), (2, "us"), (3, "us")):
        one = pa.table({"id": [key], "v": ["lsm"], "region": [region]}, schema=schema)
        merge = made.merge_insert([]).when_matched_update_all().when_not_matched_insert_all()
        merge.execute(one)
        handle.close()
    table = mw.open_table(folder(tmp_path))
    assert len(manifests(table.uri)) == 2
    session = session_of("t", table)
    for key in (1, 2, 3):
        assert table.get([key])["v"].to_pylist() == ["lsm"]
        assert session.sql(f"SELECT v FROM t WHERE id = {key}").to_pylist() == [{"v": "lsm"}]
    assert session.sql("SELECT id FROM t WHERE region = 'us' ORDER BY id").to_pylist() == [
        {"id": 2},
        {"id": 3},
    ]
    assert len(table.snapshot("strong", Said(table.schema)("region = 'us'")).regions) == 2
    for write in (table.writer, lambda: table.stager("job", RowForm())):
        with pytest.raises(mw.InvalidCallError, match=r"\['region'\].*not all part of the primary"):
            write()
    found = table.check()
    assert found.ok and "['region']" in str(found)
    assert table.merge() == 3
    assert table.scan().read_all().num_rows == 3 == made.search().to_arrow().num_rows
