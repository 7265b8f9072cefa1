"""Tables written by us, read by native code: design, rule of correctness 9."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.interop.native import (
    folder_of,
    native_lookup,
    native_scan,
    native_scan_with_tail,
    native_writer,
)
from tests.model.kinds import KINDS_BY_NAME, REGIONS_BY_NAME, KeyKind, RegionKind
from tests.model.merging import manifests, merge_one
from tests.model.oracle import Oracle, Row, rows_of, schema_of, table_of
from tests.model.queries import as_dict, random_row
from tests.soak import usual

KEYS = 12
# Native writers can't hash these keys, native readers read them.
NOT_HASHED = ("date32", "timestamp_us", "decimal128")
SETTINGS = [
    ("int64", "unsharded"),
    ("int64", "identity"),
    ("int64", "manual"),
    ("string", "unsharded"),
    ("string", "identity"),
    ("binary", "unsharded"),
    ("uint64", "unsharded"),
    ("date32", "unsharded"),
    ("timestamp_us", "manual"),
    ("decimal128", "unsharded"),
    ("int64_string", "unsharded"),
    ("int64_string", "identity"),
    ("int64_string", "manual"),
]
TEXTS = ("a", None, "日本")


class Written:
    """A table of ours with a base, several generations and upserts, deletes in each."""

    def __init__(self, uri: str, kind: KeyKind, regions: RegionKind) -> None:
        self.uri, self.kind, self.regions = uri, kind, regions
        self.rng = Random(f"{kind.name} {regions.name}")
        self.oracle = Oracle()
        seeds = [(n, random_row(self.rng, n, TEXTS)) for n in range(0, KEYS, 2)]
        lance.write_dataset(table_of(kind, seeds), uri, schema=schema_of(kind))
        self.oracle.append(seeds)
        fields = regions.fields(kind)
        arguments = {} if fields is None else {"regions": fields}
        self.table = mw.enable(uri, primary_key=kind.names, **arguments)
        self._writers: dict[str | None, Any] = {}
        self._op = 100

    def _writer(self, n: int) -> Any:
        region = self.regions.region_of(n)
        if region not in self._writers:
            named = {} if region is None else {"region": region}
            self._writers[region] = self.table.writer(**named)
        return self._writers[region]

    def write(self) -> None:
        """A batch with a key twice, then deletes of a present and an absent key."""
        numbers = [self.rng.randrange(KEYS) for _ in range(5)]
        for n in [*numbers, numbers[0]]:
            self._op += 1
            self.put(n, random_row(self.rng, self._op, TEXTS))
        for n in (self.rng.randrange(KEYS), KEYS + 1):
            self._writer(n).delete(self.kind.table([n]))
            self.oracle.delete([n], durable=True)

    def put(self, n: int, row: Row) -> None:
        self._writer(n).upsert(table_of(self.kind, [(n, row), (n, row)]))
        self.oracle.upsert([(n, row)], durable=True)

    def flush(self) -> None:
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def key(self, n: int) -> pa.Array:
        """Key `n` as the native lookup takes it."""
        arrays = self.kind.arrays([n])
        if len(arrays) == 1:
            return arrays[0]
        return pa.StructArray.from_arrays(arrays, names=self.kind.names)


def _written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    kind, regions = request.param
    return Written(folder_of(tmp_path), KINDS_BY_NAME[kind], REGIONS_BY_NAME[regions])


@pytest.fixture(params=SETTINGS, ids="-".join)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    return _written(request, tmp_path)


@pytest.fixture(params=[s for s in SETTINGS if s[0] not in NOT_HASHED], ids="-".join)
def written_for_natives(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    return _written(request, tmp_path)


def test_native_reads_our_rows_of_several_generations_and_after_a_merge(written: Written) -> None:
    for _ in range(3):
        written.write()
        written.flush()
    found = as_dict(written.kind, native_scan(written.uri), "native scan")
    assert found == written.oracle.rows
    for n in usual(range(KEYS + 2), 7):
        found = rows_of(written.kind, native_lookup(written.uri, written.key(n)))
        row = written.oracle.rows.get(n)
        assert found == ([] if row is None else [(n, row)])
    for region_id in manifests(written.uri):
        merge_one(written.uri, region_id, written.kind.names)
    found = as_dict(written.kind, native_scan(written.uri), "native scan")
    assert found == written.oracle.rows
    written.close()


def test_native_takes_over_our_unflushed_tail(written_for_natives: Written) -> None:
    written = written_for_natives
    written.write()
    written.flush()
    written.write()
    written.write()
    expected = dict(written.oracle.rows)
    before = as_dict(written.kind, native_scan(written.uri), "native scan")
    for region_id in manifests(written.uri):
        found = as_dict(
            written.kind, native_scan_with_tail(written.uri, region_id), "native scan with tail"
        )
        # The tails of the other regions are not in it before their turn.
        for n in {*found, *expected, *before}:
            assert found.get(n) in (expected.get(n), before.get(n))
        before = found
    assert before == expected or len(manifests(written.uri)) > 1
    # Native close() flushed what it took over: now everything is in generations.
    assert as_dict(written.kind, native_scan(written.uri), "native scan") == expected
    assert as_dict(written.kind, written.table.scan().read_all(), "our scan") == expected


def test_a_native_writer_goes_on_where_ours_stopped(written_for_natives: Written) -> None:
    written = written_for_natives
    """Ours, native's, ours again: every row of every writer is there."""
    written.write()
    written.flush()
    written.write()
    written.close()
    for region_id in sorted(manifests(written.uri)):
        ours = dict(written.oracle.rows)
        mine = _some_key_of(written, region_id)
        row = random_row(written.rng, 9_000, TEXTS)
        with native_writer(written.uri, region_id) as writer:
            batch = table_of(written.kind, [(mine, row)])
            writer.put(batch.cast(lance.dataset(written.uri).schema))
        written.oracle.upsert([(mine, row)], durable=True)
        assert ours.keys() | {mine} == written.oracle.rows.keys()
    found = as_dict(written.kind, written.table.scan().read_all(), "our scan")
    assert found == written.oracle.rows
    again = Written.__new__(Written)
    again.__dict__ = {**written.__dict__, "_writers": {}}
    again.write()
    found = as_dict(written.kind, written.table.scan().read_all(), "our scan")
    assert found == again.oracle.rows
    again.close()


def _some_key_of(written: Written, region_id: Any) -> int:
    """A key that lives in a region: one of its own rows."""
    for region in written.table.snapshot("strong").regions:
        if region.region_id == region_id:
            for source in region.sources:
                keys = source.keys().table
                if keys.num_rows:
                    return written.kind.numbers(keys.slice(0, 1))[0]
    raise AssertionError(f"region {region_id} has no rows")
