"""Tables written by native code, read and continued by us: design, rule of correctness 9."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.mem_wal import LsmVectorSearchPlanner, evaluate_sharding_spec

import memwal_sql as mw
from memwal_sql.maintain.checks.findings import Severity
from tests.index.tables import rows, schema_of
from tests.interop.native import (
    create_native,
    folder_of,
    native_lookup,
    native_scan,
    native_scan_with_tail,
    native_schema,
    native_writer,
    snapshots,
    wait_for_flushes,
)
from tests.model.merging import manifests
from tests.model.writing import flush_rows, session_of

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("v", pa.float64()), pa.field("s", pa.string())]
)
NATIVE = native_schema(SCHEMA, ["id"])
Rows = dict[int, tuple[float | None, str | None]]


def _table(rows: list[tuple[int, float | None, str | None]]) -> pa.Table:
    ids, values, texts = zip(*rows, strict=True)
    return pa.table({"id": ids, "v": values, "s": texts}, schema=NATIVE)


def _keys(*ids: int) -> pa.Table:
    return pa.table({"id": ids}, schema=pa.schema([NATIVE.field("id")]))


def _rows(table: pa.Table) -> Rows:
    columns = [table.column(name).to_pylist() for name in ("id", "v", "s")]
    assert len(set(columns[0])) == len(columns[0]), "a key was returned twice"
    return {key: (v, s) for key, v, s in zip(*columns, strict=True)}


BASE = [(i, float(i), "base") for i in range(10)]
MODES = {
    "unsharded": {"unsharded": True},
    "identity": {"identity_column": "id"},
    "bucket": {"bucket_column": "id", "num_buckets": 4},
    "manual": {},
}


def _written_natively(uri: str, mode: str) -> tuple[UUID, Rows]:
    """Two flushed generations and an unflushed tail, all in one region."""
    create_native(uri, _table(BASE), ["id"], **MODES[mode])
    region_id = uuid4()
    writer = native_writer(uri, region_id, max_memtable_rows=4)
    writer.put(_table([(1, 1.1, "x"), (2, 2.2, "y"), (1, 1.2, "z")]))
    writer.delete(_keys(3, 77))
    wait_for_flushes(writer, 1)
    writer.put(_table([(1, 1.3, None), (20, 20.0, "new"), (3, 3.3, "back"), (4, None, "null")]))
    wait_for_flushes(writer, 2)
    writer.delete(_keys(20))
    writer.put(_table([(5, 5.5, "tail")]))
    rows: Rows = {i: (v, s) for i, v, s in BASE}
    rows |= {1: (1.3, None), 2: (2.2, "y"), 3: (3.3, "back"), 4: (None, "null"), 5: (5.5, "tail")}
    return region_id, rows


@pytest.mark.parametrize("mode", MODES)
def test_our_reads_give_the_rows_of_the_native_writer(mode: str, tmp_path: Path) -> None:
    """Native code may leave a region's values out: such regions are never pruned."""
    uri = folder_of(tmp_path)
    _, rows = _written_natively(uri, mode)
    table = mw.open_table(uri)
    assert _rows(table.scan().read_all()) == rows
    context = session_of("t", table)
    assert _rows(context.sql("SELECT * FROM t").to_arrow_table()) == rows
    for key in (*range(12), 20, 77):
        expected = {key: rows[key]} if key in rows else {}
        assert _rows(table.get([key])) == expected
        assert _rows(context.sql(f"SELECT * FROM t WHERE id = {key}").to_arrow_table()) == expected
    assert _rows(table.get(list(range(30)))) == rows
    flushed = table.scan(consistency="manifest").read_all()
    assert _rows(flushed) == _rows(native_scan(uri))
    # The manifests of native code count deleted rows too.
    assert [one for one in table.check() if one.severity is Severity.ERROR] == []


def test_our_writer_takes_over_a_native_region_with_its_tail(tmp_path: Path) -> None:
    """Ours replays native WAL entries; the native writer is fenced by ours."""
    uri = folder_of(tmp_path)
    create_native(uri, _table(BASE), ["id"], unsharded=True)
    table = mw.open_table(uri)
    with table.writer() as first:  # the region of the spec, so that native code shares it
        first.upsert(_table([(0, 0.5, "ours")]))
    (region_id,) = manifests(uri)
    native = native_writer(uri, region_id)
    native.put(_table([(1, 1.5, "native"), (2, 2.5, "native")]))
    native.delete(_keys(4))
    rows: Rows = {i: (v, s) for i, v, s in BASE}
    rows |= {0: (0.5, "ours"), 1: (1.5, "native"), 2: (2.5, "native")}
    del rows[4]
    assert _rows(table.scan().read_all()) == rows
    with table.writer() as second:
        second.upsert(_table([(2, 2.75, "ours again"), (4, 4.5, "back")]))
        rows |= {2: (2.75, "ours again"), 4: (4.5, "back")}
        assert _rows(table.scan().read_all()) == rows
        with pytest.raises(OSError, match=r"(?i)fence"):
            native.put(_table([(9, 9.9, "zombie")]))
        second.flush()
    assert _rows(table.scan().read_all()) == rows
    assert _rows(native_scan(uri)) == rows


@pytest.mark.parametrize("mode", ["bucket", "identity"])
def test_our_writer_refuses_beside_native_regions_without_values(mode: str, tmp_path: Path) -> None:
    """Protocol rules 1 and 11: native code may leave a region's values out, and a second region
    of the same values would hide rows of the first."""
    uri = folder_of(tmp_path)
    _, rows = _written_natively(uri, mode)
    table = mw.open_table(uri)
    regions = set(manifests(uri))
    with table.writer() as writer:
        for _ in range(2):
            with pytest.raises(mw.InvalidCallError, match="values native code has not written"):
                writer.upsert(_table([(1, 0.5, "ours")]))
    assert set(manifests(uri)) == regions
    assert _rows(table.scan().read_all()) == rows


@pytest.mark.parametrize(
    "type_", [pa.int64(), pa.int32(), pa.string(), pa.bool_(), pa.uint64()], ids=str
)
def test_rows_of_a_native_bucket_table_are_routed_by_native_s_rule(
    type_: pa.DataType, tmp_path: Path
) -> None:
    """Protocol rule 12: `(h & 0x7fffffff) % N`, not the specification's function."""
    uri = folder_of(tmp_path)
    values = [True, False] if pa.types.is_boolean(type_) else list(range(40))
    if pa.types.is_string(type_):
        values = [f"key{v}ä" for v in values]
    schema = pa.schema([pa.field("id", type_, False), pa.field("v", pa.int64())])
    rows = pa.table({"id": pa.array(values, type_), "v": list(range(len(values)))}, schema=schema)
    create_native(uri, rows.slice(0, 0), ["id"], bucket_column="id", num_buckets=4)
    table = mw.open_table(uri)
    flush_rows(table, rows)
    dataset = lance.dataset(uri)
    (spec,) = dataset.mem_wal_index_details()["sharding_specs"]
    batch = rows.combine_chunks().to_batches()[0]
    buckets = evaluate_sharding_spec(batch, spec, dataset.lance_schema).column(0).to_pylist()
    expected = dict(zip(rows["id"].to_pylist(), buckets, strict=True))
    found = {}
    for region in table.snapshot("manifest").regions:
        assert region.values is not None
        (bucket,) = region.values.values()
        for source in region.sources:
            for key in source.keys().table["id"].to_pylist():
                found[key] = bucket
    assert found == expected
    context = session_of("t", table)
    for key, literal in [(v, repr(v)) for v in values][:8]:
        sql = (
            f"SELECT v FROM t WHERE id = {str(literal).lower() if type_ == pa.bool_() else literal}"
        )
        assert context.sql(sql).to_arrow_table()["v"].to_pylist() == [values.index(key)]
    native = native_scan(uri)
    assert sorted(native["v"].to_pylist()) == sorted(rows["v"].to_pylist())


# Generations with vector and full-text indexes, and indexes that are maintained, as native code
# finds them: design, rule of correctness 9.


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    uri = folder_of(tmp_path)
    lance.write_dataset(rows(0, 600), uri, schema=schema_of())
    table = mw.enable(uri, primary_key="id")
    table.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=4)
    table.create_index("body", "FTS")
    with table.writer() as writer:
        writer.upsert(rows(500, 700))
        writer.flush()
        writer.upsert(rows(690, 720))
        writer.delete([1])
    return table


def test_native_reads_generations_with_indexes(table: mw.Table) -> None:
    found = native_scan(table.uri)
    assert sorted(found["id"].to_pylist()) == list(range(700))
    assert (
        native_lookup(table.uri, pa.array([650]))["body"].to_pylist()
        == rows(650, 651)["body"].to_pylist()
    )


def test_native_searches_the_vectors_of_our_generations(table: mw.Table) -> None:
    planner = LsmVectorSearchPlanner(lance.dataset(table.uri), snapshots(table.uri), "v")
    for n in (100, 650):
        query = rows(n, n + 1)["v"].combine_chunks().flatten()
        found = planner.plan_search(query, k=1, nprobes=2).to_table()
        assert found["id"].to_pylist() == [n]


def test_native_takes_over_a_region_with_maintained_indexes(table: mw.Table) -> None:
    (region,) = table.snapshot().regions
    found = native_scan_with_tail(table.uri, region.region_id)
    assert sorted(found["id"].to_pylist()) == [0, *range(2, 720)]


def test_we_search_what_native_code_flushed(table: mw.Table) -> None:
    """Native generations have the vector index too, or none: either way the rows are found."""
    (region,) = table.snapshot().regions
    new = rows(800, 810)
    with lance.dataset(table.uri).mem_wal_writer(str(region.region_id)) as writer:
        writer.put(new.to_batches()[0])
    query = np.asarray(new["v"][3].as_py(), np.float32)
    assert table.vector_search("v", query, 1)["id"].to_pylist() == [803]
    assert table.full_text_search("body", "row803")["id"].to_pylist() == [803]
