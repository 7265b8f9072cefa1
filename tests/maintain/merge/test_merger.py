"""The merger alone: what it leaves in the base table and in the index (protocol rules 18, 20)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import ConflictError
from memwal_sql.maintain.merge import commit as passes
from memwal_sql.maintain.progress import Progress
from memwal_sql.storage.base.merge_token import LAST_PASS, pass_shard, token
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.paths import generation_folder
from memwal_sql.storage.region.versions import RegionManifests
from tests.each import each
from tests.maintain.merging_tables import (
    GENERATIONS,
    expected,
    in_base,
    make_table,
    merger_of,
    progress_of,
    rows_of,
    write_generations,
)
from tests.model.merging import manifests, merged_generations
from tests.model.writing import merge_rows


def test_generations_move_into_the_base_table_in_order(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    (region,) = manifests(table.uri)
    assert in_base(table.uri) == {}
    assert table.merge() == 3
    assert in_base(table.uri) == expected() == {0: 3, 1: 2, 2: 3, 3: 1}
    assert progress_of(table.uri) == {str(region): 3}
    for consistency in ("strong", "manifest", "eventual"):
        assert rows_of(table, consistency) == expected()
    assert table.snapshot().regions[0].sources == ()
    version = lance.dataset(table.uri).version
    assert table.merge() == 0
    assert lance.dataset(table.uri).version == version


def test_every_commit_carries_a_token(tmp_path: Path) -> None:
    """Protocol rule 20: a pass that comes late is refused for its mark, whichever rows it has."""
    for deletes in ([], [1]):
        table = make_table(tmp_path / str(deletes), [({1: 1, 2: 2}, []), ({2: 3}, deletes)])
        (region,) = manifests(table.uri)
        table.merge()
        marks = merged_generations(table.uri)
        first = 2 if deletes else 1  # without tombstones both are merged together
        assert marks == {region: 2, pass_shard(region): token(first, LAST_PASS)}
        rows = pa.table({"id": [99], "val": [0]}, lance.dataset(table.uri).schema)
        for generations, last in ([first], False), ([first], True), ([first, 3], True):
            late = passes.PassWriter(lance.dataset(table.uri), ["id"], {region: generations}, {})
            with pytest.raises(ConflictError, match="Stale"):
                late.upsert(rows, last=last)


def test_generations_that_fit_into_one_commit_are_merged_together(tmp_path: Path) -> None:
    """The newest row of each key counts; with tombstones a generation is merged by itself."""
    plain = [({n: n, n + 1: n, 50: n}, []) for n in range(5)]
    table = make_table(tmp_path, [*plain, ({1: 60, 70: 70}, [50]), *plain[:2]])
    versions = lance.dataset(table.uri).version
    told: list[Progress] = []
    assert table.merge(progress=told.append) == 8
    assert in_base(table.uri) == expected([*plain, ({1: 60, 70: 70}, [50]), *plain[:2]])
    assert [(one.done, one.total) for one in told] == [(7, 7), (1, 3), (3, 3), (4, 4)]
    # Four commits of rows, and one record of the regions before those in two passes, which is
    # still true afterwards.
    assert lance.dataset(table.uri).version - versions == 5
    narrow = make_table(tmp_path / "narrow", plain)
    assert merger_of(narrow, max_pass_bytes=100)() == 5
    assert in_base(narrow.uri) == expected(plain)


def test_a_merge_records_the_regions(tmp_path: Path) -> None:
    """Protocol rule 18: the version that it leaves is read later as it is now."""
    table = make_table(tmp_path, GENERATIONS[:2])
    with table.writer() as writer:
        writer.upsert({"id": [50], "val": [5]})
        writer.flush()
        table.merge()
        version = lance.dataset(table.uri).version
        writer.upsert({"id": [1, 51], "val": [6, 6]})
        writer.flush()
    table.merge()
    then = {**expected(GENERATIONS[:2]), 50: 5}
    assert not mw.open_table(table.uri, version=version).reads_base_alone
    assert rows_of(mw.open_table(table.uri, version=version)) == then
    assert rows_of(table, "eventual") == {**then, 1: 6, 51: 6}


def test_only_the_regions_asked_for_are_merged(tmp_path: Path) -> None:
    table = make_table(tmp_path, regions=[mw.bucket("id", 2)])
    in_regions = table.generations().group_by("region").aggregate([([], "count_all")])
    counts = dict(zip(*in_regions.to_pydict().values(), strict=True))
    assert table.merge(regions=["id_bucket=1"]) == counts["id_bucket=1"]
    assert len(progress_of(table.uri)) == 1
    assert rows_of(table) == expected()
    with pytest.raises(mw.InvalidCallError, match=r"id_bucket=9.*there are"):
        table.merge(regions=["id_bucket=9"])
    assert table.merge() == counts["id_bucket=0"]
    assert in_base(table.uri) == expected()


@each("recorded", [True, False])
def test_every_version_in_between_reads_as_a_state_that_was(tmp_path: Path, recorded: bool) -> None:
    """Protocol rules 18 and 20: a version that holds a part of a generation is read with the whole
    of it. A merge in parts, as the first one is that deletes, records the regions where nobody has
    done so."""
    generations = GENERATIONS if recorded else GENERATIONS[1:]
    table = make_table(tmp_path, generations)
    first = table.snapshot_regions() if recorded else lance.dataset(table.uri).version + 1
    merger_of(table, max_pass_bytes=1)()
    last = lance.dataset(table.uri).version
    for version in range(first, last + 1):
        assert rows_of(mw.open_table(table.uri, version=version)) == expected(generations), version


def test_a_part_of_a_generation_that_no_record_names_is_not_read(tmp_path: Path) -> None:
    """Protocol rule 20: while the token says "part of g" a version is right only with g."""
    table = make_table(tmp_path, GENERATIONS[:1])
    table.merge()
    write_generations(table, GENERATIONS[1:2])
    dataset = lance.dataset(table.uri)
    (region,) = manifests(table.uri)
    writer = passes.PassWriter(dataset, ["id"], {region: [2]}, {})
    writer.delete(
        pa.table({"id": [0]}, schema=dataset.schema.empty_table().select(["id"]).schema), last=False
    )
    assert in_base(table.uri) == {1: 1, 2: 1, 3: 1}
    with pytest.raises(mw.RetryError, match="in the middle of a merge"):
        mw.open_table(table.uri, version=dataset.version)
    for consistency in ("eventual", "manifest", "strong"):
        assert rows_of(mw.open_table(table.uri), consistency) == expected(GENERATIONS[:2])
    assert table.merge() == 1
    assert in_base(table.uri) == expected(GENERATIONS[:2])


def _repeat_keys(table: mw.Table, writes: list[tuple[int, int | None]]) -> None:
    """Let the newest generation hold all of these writes in their order, None for deletes, as a
    flush leaves them by the specification; the keys are those that it had."""
    ((region_id, manifest),) = manifests(table.uri).items()
    newest = manifest.flushed_generations[-1]
    folder = Path(table.uri) / generation_folder(region_id, newest.path)
    schema = lance.dataset(folder).schema
    columns = {"id": [w[0] for w in writes], "val": [w[1] for w in writes]}
    columns |= {"_tombstone": [w[1] is None for w in writes]}
    lance.write_dataset(pa.table(columns, schema=schema), folder, mode="overwrite")
    lance.dataset(folder).create_scalar_index("id", "BTREE")
    known = (*manifest.flushed_generations[:-1], replace(newest, rows=len(writes)))
    RegionManifests(open_store(table.uri), region_id).commit(manifest, flushed_generations=known)


@pytest.mark.parametrize("max_pass_bytes", [1, 10**9])
@pytest.mark.parametrize("seed", range(4))
def test_of_a_key_that_a_generation_repeats_the_last_row_is_read_and_merged(
    tmp_path: Path, seed: int, max_pass_bytes: int
) -> None:
    """Specification 2, "MemTable Flush"; native code masks the others, ours writes none."""
    rng = Random(seed)
    keys = [*range(6)]
    writes = [(key, rng.choice([None, 10 + n])) for n, key in enumerate(rng.choices(keys, k=20))]
    writes = [*((key, 5) for key in keys), *writes]
    table = make_table(tmp_path, [({3: 1, 4: 1, 9: 1}, []), (dict.fromkeys(keys, 5), [])])
    _repeat_keys(table, writes)
    live = {9: 1} | {key: val for key, val in dict(writes).items() if val is not None}
    assert rows_of(mw.open_table(table.uri)) == live
    found = mw.open_table(table.uri).get([*keys, 9]).to_pylist()
    assert {row["id"]: row["val"] for row in found} == live
    for key in keys:
        alone = mw.open_table(table.uri).get([key])["val"].to_pylist()
        assert alone == ([live[key]] if key in live else [])
    assert merger_of(mw.open_table(table.uri), max_pass_bytes)() == 2
    assert in_base(table.uri) == rows_of(mw.open_table(table.uri)) == live


@pytest.mark.parametrize(
    ("max_pass_bytes", "passes_of_first"), [(17_000, 5), (42_000, 2), (10**9, 1)]
)
def test_a_generation_larger_than_memory_is_merged_in_passes(
    tmp_path: Path, max_pass_bytes: int, passes_of_first: int
) -> None:
    rows = 5000  # of a little more than 16 bytes
    first, second = dict.fromkeys(range(rows), 1), dict.fromkeys(range(0, rows, 2), 2)
    generations = [(first, []), (second, [1, 3])]
    table = make_table(tmp_path, generations[:1])
    table.snapshot_regions()
    before = lance.dataset(table.uri).version
    assert merger_of(table, max_pass_bytes)() == 1
    assert lance.dataset(table.uri).version - before == passes_of_first  # nothing new to record
    write_generations(table, generations[1:])
    assert merger_of(table, max_pass_bytes)() == 1
    assert in_base(table.uri) == expected(generations)


def test_a_pass_that_lance_has_no_memory_for_is_made_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 90_000  # of 16 bytes
    table = make_table(tmp_path, [({n: n for n in range(rows)}, [])])
    largest = 1_300_000
    upsert = passes.PassWriter.upsert

    def exhausted(self: passes.PassWriter, rows: pa.Table, *, last: bool) -> None:
        if rows.nbytes > largest:
            raise passes.TooLargeError("Resources exhausted")
        upsert(self, rows, last=last)

    monkeypatch.setattr(passes.PassWriter, "upsert", exhausted)
    assert merger_of(table, 5_000_000)() == 1
    assert in_base(table.uri) == {n: n for n in range(rows)}
    largest = 1
    write_generations(table, [({1: 1}, [])])
    with pytest.raises(mw.RetryError, match="LANCE_MEM_POOL_SIZE"):
        merger_of(table, 5_000_000)()
    assert rows_of(table)[1] == 1


def test_progress_is_told_region_by_region(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    told: list[Progress] = []
    table.merge(progress=told.append)
    name = table.regions()["region"][0].as_py()
    assert [(one.region, one.done, one.total) for one in told] == [
        (name, 4, 4), (name, 1, 3), (name, 3, 3), (name, 2, 4), (name, 4, 4),
    ]  # fmt: skip
    assert {one.job for one in told} == {"merge"}


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("second", [{"id": 1, "val": 2}, None])
@pytest.mark.parametrize("first", [{"id": 1, "val": 1}, None])
def test_a_key_in_two_regions_is_merged_region_by_region(
    tmp_path: Path, first: dict[str, int] | None, second: dict[str, int] | None, there: bool
) -> None:
    """Which regions given by hand, or by native code, may have: one commit takes a key once."""
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("val", pa.int64())])
    table = mw.create_table(tmp_path / "t", schema, "id", mw.manual())
    if there:
        merge_rows(table, [{"id": 1, "val": 0}], region="a")
    for region, row in (("a", first), ("b", second)):
        with table.writer(region=region) as writer:
            writer.upsert([{"id": len(region) + 10, "val": 0}])
            if row is None:
                writer.delete([1])
            else:
                writer.upsert([row])
            writer.flush()
    assert table.merge() == 2
    found = [row for row in in_base(table.uri).items() if row[0] == 1]
    assert len(found) <= 1
    assert {value for _, value in found} <= {1, 2}
    assert table.count_rows() == 1 + len(found)
