"""The change feed: what was written after a place, in order, or an error that names the gap."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.read import LogLimits
from memwal_sql.bulk.rows import RowForm
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.state.memtable import memtable_schema
from memwal_sql.storage import paths
from memwal_sql.storage.generation.write import write_generation
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal, encode_entry, encode_fence
from tests.each import each
from tests.model.process import as_another_process, forget_writers
from tests.model.writing import flush_rows, upsert_rows
from tests.soak import SOAK

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("n", pa.int64(), False),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
Change = tuple[str, int, int | None]


def rows(*pairs: tuple[int, int]) -> pa.Table:
    ids, numbers = zip(*pairs, strict=True)
    tags = [[f"t{n}"] for n in numbers]
    return pa.table({"id": ids, "n": numbers, "tags": tags}, schema=SCHEMA)


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def read(reader: pa.RecordBatchReader) -> list[Change]:
    """(change, id, n) of every row, in order."""
    found = reader.read_all()
    return list(zip(*(found[name].to_pylist() for name in ("_change", "id", "n")), strict=True))


def places(reader: pa.RecordBatchReader) -> list[list[int]]:
    found = reader.read_all()
    return [
        [p, g]
        for p, g in zip(
            found["_position"].to_pylist(), found["_generation"].to_pylist(), strict=True
        )
    ]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """One region."""
    return mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key="id")


class Region:
    """The only region of a table, below the table's own interface."""

    def __init__(self, table: Any) -> None:
        self.uri = table.uri
        self.store = open_store(table.uri)
        (name,) = self.store.list_folders(paths.MEM_WAL_FOLDER)
        self.id = UUID(name)
        self.manifests = RegionManifests(self.store, self.id)
        self.wal = Wal(self.store, self.id)

    def publish(self, data: pa.Table) -> int:
        """Commit rows as a generation that has no WAL entries, as protocol rule 24 has it: after
        a fence, when all entries before it are flushed."""
        manifest = self.manifests.latest()
        epoch = manifest.writer_epoch + 1
        manifest = self.manifests.commit(manifest, writer_epoch=epoch)
        last = self.wal.positions()[-1]
        assert self.wal.append(last + 1, encode_fence(writer_epoch=epoch)).landed
        flushed = write_generation(
            self.store,
            self.uri,
            self.id,
            manifest.current_generation,
            data.append_column("_tombstone", pa.array([False] * len(data))).cast(
                memtable_schema(SCHEMA)
            ),
            primary_key=("id",),
            base=lance.dataset(self.uri),
            bloom_filter=b"",
        )
        self.manifests.commit(
            manifest,
            current_generation=flushed.generation + 1,
            flushed_generations=(*manifest.flushed_generations, flushed),
            replay_after_wal_entry_position=last + 1,
        )
        return flushed.generation

    def collect(self, *positions: int) -> None:
        self.store.delete([self.wal.path(position) for position in positions])


def test_every_write_is_there_in_order_with_its_place(table: Any) -> None:
    with table.writer() as writer:
        writer.upsert(rows((1, 10), (2, 20)))
        writer.delete(keys(1))
        writer.flush()
        writer.upsert(rows((1, 30)))
    found = table.changes().read_all()
    assert found.column_names == [
        *SCHEMA.names,
        "_change",
        "_region",
        "_position",
        "_generation",
        "_transaction",
    ]
    (region,) = table.change_offsets()
    assert found.drop_columns("_region").to_pylist() == [
        {
            "id": 1,
            "n": 10,
            "tags": ["t10"],
            "_change": "upsert",
            "_position": 2,
            "_generation": 1,
            "_transaction": None,
        },
        {
            "id": 2,
            "n": 20,
            "tags": ["t20"],
            "_change": "upsert",
            "_position": 2,
            "_generation": 1,
            "_transaction": None,
        },
        {
            "id": 1,
            "n": None,
            "tags": None,
            "_change": "delete",
            "_position": 3,
            "_generation": 1,
            "_transaction": None,
        },
        {
            "id": 1,
            "n": 30,
            "tags": ["t30"],
            "_change": "upsert",
            "_position": 4,
            "_generation": 2,
            "_transaction": None,
        },
    ]
    assert found["_region"].unique().to_pylist() == [region]
    assert table.change_offsets() == {region: [4, 2]}


@pytest.mark.parametrize("pair", [True, False])
def test_reading_goes_on_after_any_row(table: Any, pair: bool) -> None:
    for number in range(3):
        with table.writer() as writer:
            writer.upsert(rows((number, number)))
            writer.delete(keys(number))
            if number != 1:
                writer.flush()
    all_rows = read(table.changes())
    all_places = places(table.changes())
    assert len(all_rows) == 6
    for index, place in enumerate(all_places):
        after = place if pair else place[0]
        assert read(table.changes(after=after)) == all_rows[index + 1 :]
        assert read(table.changes(until=after)) == all_rows[: index + 1]


def test_nothing_new_is_an_empty_stream(table: Any) -> None:
    assert table.change_offsets() == {}
    assert read(table.changes()) == []
    with table.writer() as writer:
        writer.upsert(rows((1, 1)))
        ends = table.change_offsets()
        assert read(table.changes(after=ends)) == []
        writer.upsert(rows((1, 2)))
        assert read(table.changes(after=ends)) == [("upsert", 1, 2)]
        assert read(table.changes(after=ends, until=ends)) == []


def test_rows_that_are_only_in_memory_are_not_there_yet(table: Any) -> None:
    with table.writer(durable=False, wal_flush_interval_s=3600.0) as writer:
        writer.upsert(rows((1, 1)))
        assert table.get(1).num_rows == 1
        assert read(table.changes()) == []
    assert read(table.changes()) == [("upsert", 1, 1)]


def test_columns_are_chosen_and_key_columns_stay_in_deletes(table: Any) -> None:
    with table.writer() as writer:
        writer.upsert(rows((1, 1)))
        writer.delete(keys(1))
    found = table.changes(columns=["id"]).read_all()
    assert found.column_names[:2] == ["id", "_change"]
    assert found["id"].to_pylist() == [1, 1]


def test_regions_are_followed_together_or_alone(tmp_path: Path) -> None:
    table = mw.create_table(
        str(tmp_path / "table"), SCHEMA, primary_key="id", regions=[mw.bucket("id", 3)]
    )
    with table.writer() as writer:
        writer.upsert(rows(*((i, i) for i in range(30))))
        ends = table.change_offsets()
        writer.upsert(rows(*((i, -i) for i in range(30, 60))))
    assert len(ends) == 3
    assert sorted(key for _, key, _ in read(table.changes())) == list(range(60))
    assert sorted(key for _, key, _ in read(table.changes(after=ends))) == list(range(30, 60))
    found = table.regions().to_pylist()
    alone = [read(table.changes(region=one["region"])) for one in found]
    assert alone == [read(table.changes(UUID(one["region_id"]))) for one in found]
    assert sorted(key for part in alone for _, key, _ in part) == list(range(60))
    name = found[0]["region"]
    part = read(table.changes(region=name, after=ends[found[0]["region_id"]]))
    assert part == [change for change in alone[0] if change[1] >= 30]
    assert read(table.changes(region=name, after=ends, until=ends)) == []
    assert read(table.changes(until={name: ends[found[0]["region_id"]]})) == [
        change for change in alone[0] if change[1] < 30
    ]


def test_a_region_given_by_hand_is_found_by_its_name(tmp_path: Path) -> None:
    table = mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key="id", regions=mw.manual())
    upsert_rows(table, rows((1, 1)), region="eu")
    assert read(table.changes(region="eu")) == [("upsert", 1, 1)]
    with pytest.raises(mw.InvalidCallError, match="no region 'us'; there are"):
        table.changes(region="us")


def test_a_collected_entry_is_a_gap_that_is_said(table: Any) -> None:
    with table.writer() as writer:
        for number in range(4):  # positions 2 to 5
            writer.upsert(rows((number, number)))
        writer.flush()
        writer.upsert(rows((9, 9)))
    region = Region(table)
    region.collect(2, 3)
    with pytest.raises(
        mw.ChangesCollectedError, match=r"position 2 were collected.*change_offsets"
    ):
        read(table.changes())
    for place in (1, 2):  # with a gap above the next position, too, and right below an entry
        with pytest.raises(mw.ChangesCollectedError, match=f"position {place + 1} were collected"):
            read(table.changes(after=[place, 1]))
    assert read(table.changes(after=[3, 1])) == [
        ("upsert", 2, 2),
        ("upsert", 3, 3),
        ("upsert", 9, 9),
    ]
    with pytest.raises(mw.ChangesCollectedError, match=r"give \[position, generation\]"):
        read(table.changes(after=3))


def test_what_is_flushed_and_collected_while_it_is_looked_for_is_a_gap(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol rule 15: "not found at p" ends the feed only if a re-read manifest agrees."""
    with table.writer() as writer:
        writer.upsert(rows((1, 1)))
        exists = Wal.exists

        def late(wal: Wal, position: int) -> bool:
            monkeypatch.setattr(Wal, "exists", exists)
            for number in (2, 3, 4):
                writer.upsert(rows((number, number)))
            writer.flush()
            Region(table).collect(position, position + 1)
            return wal.exists(position)

        reader = mw.open_table(table.uri).changes(after=[2, 1])
        monkeypatch.setattr(Wal, "exists", late)
        with pytest.raises(mw.ChangesCollectedError, match="position 3 were collected"):
            read(reader)


def test_an_entry_that_vanishes_while_it_is_read_is_a_gap(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.writer() as writer:
        writer.upsert(rows((1, 1)))
        writer.upsert(rows((2, 2)))
        positions = Wal.positions

        def then_collected(wal: Wal) -> list[int]:
            found = positions(wal)
            writer.upsert(rows((3, 3)))
            writer.flush()
            Region(table).collect(3)
            return found

        reader = mw.open_table(table.uri).changes()
        monkeypatch.setattr(Wal, "positions", then_collected)
        with pytest.raises(mw.ChangesCollectedError, match="position 3 were collected"):
            read(reader)


def test_a_missing_entry_that_was_not_flushed_is_damage(table: Any) -> None:
    with table.writer() as writer:
        for number in range(3):
            writer.upsert(rows((number, number)))
    Region(table).collect(3)
    with pytest.raises(mw.CorruptFileError, match="is missing, but later WAL entries"):
        read(table.changes())


def test_a_torn_tail_is_not_there_and_passed_over_once_a_fence_says_so(table: Any) -> None:
    """Protocol rule 9."""
    upsert_rows(table, rows((1, 1)))
    region = Region(table)
    entry = encode_entry(
        table.changes().read_all().select(SCHEMA.names).to_batches()[0],
        writer_epoch=1,
        generation=1,
    )
    region.store.put(region.wal.path(3), entry[: len(entry) // 2])
    assert table.change_offsets() == {str(region.id): [2, 1]}
    assert read(table.changes()) == [("upsert", 1, 1)]
    forget_writers(table.uri)
    upsert_rows(mw.open_table(table.uri), rows((1, 2)))
    assert read(table.changes(after=2)) == [("upsert", 1, 2)]


def test_rows_above_a_torn_entry_are_damage(table: Any) -> None:
    """Protocol rule 9: whoever wrote them had been told that the torn entry was complete."""
    with table.writer() as writer:
        for number in range(3):  # positions 2 to 4
            writer.upsert(rows((number, number)))
    region = Region(table)
    path = region.wal.path(3)
    region.store.put(path, region.store.get(path)[:-20])
    with pytest.raises(mw.TornEntryError, match="ends"):
        read(table.changes())


def test_rows_above_a_newer_fence_are_damage(table: Any) -> None:
    """Protocol rule 5: data of a lower epoch above a fence."""
    upsert_rows(table, rows((1, 1)))
    region = Region(table)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1]), pa.array([1]), pa.array([["x"]]), pa.array([False])],
        schema=memtable_schema(SCHEMA),
    )
    region.wal.append(3, encode_fence(writer_epoch=7))
    region.wal.append(4, encode_entry(batch, writer_epoch=6, generation=1))
    with pytest.raises(mw.CorruptFileError, match="above the fence of epoch 7"):
        read(table.changes())


def test_a_generation_published_without_entries_is_in_its_place(table: Any) -> None:
    """Protocol rule 24."""
    flush_rows(table, rows((1, 1)))
    region = Region(table)
    assert region.publish(rows((2, 2), (3, 3))) == 2
    before_next = table.change_offsets()[str(region.id)]
    assert region.publish(rows((3, 4))) == 3
    forget_writers(table.uri)
    upsert_rows(mw.open_table(table.uri), rows((4, 4)))
    expected = [("upsert", 1, 1), ("upsert", 2, 2), ("upsert", 3, 3), ("upsert", 3, 4)]
    expected.append(("upsert", 4, 4))
    assert read(table.changes()) == expected
    assert read(table.changes(after=before_next)) == expected[3:]
    found = places(table.changes())
    assert found == sorted(found)
    for index, place in enumerate(found):
        later = sum(one > place for one in found)
        assert read(table.changes(after=place)) == expected[len(expected) - later :], index
        upto = sum(one <= place for one in found)
        assert read(table.changes(until=place)) == expected[:upto], index


def test_a_published_generation_at_the_end_is_read_once(table: Any) -> None:
    """Protocol rule 24: no entry comes after it yet."""
    flush_rows(table, rows((1, 1)))
    start = table.change_offsets()
    region = Region(table)
    region.publish(rows((2, 2)))
    (place,) = places(table.changes(after=start))
    assert [place] == list(table.change_offsets().values())
    assert read(table.changes(after=place)) == []


def test_batches_that_spark_publishes_are_in_the_feed(table: Any) -> None:
    """Protocol rule 24: few rows as a WAL entry, many as a generation, and both once."""
    stream = table.publisher()

    def publish(number: int, data: pa.Table, most_in_wal: int) -> None:
        for publisher in (stream, table.publisher()):  # the second is a replay elsewhere
            task = table.stager("job", RowForm()).stage(data.to_batches())
            with LogLimits.set(rows=most_in_wal):
                publisher.publish([task], BatchMark("query", number))

    expected: list[Change] = []
    seen: list[Change] = []
    offsets: dict[str, list[int]] = {}
    for number, most_in_wal in enumerate([10, 1, 1, 10, 10, 1], start=1):
        publish(number, rows((number, number), (100 + number, number)), most_in_wal)
        expected += [("upsert", number, number), ("upsert", 100 + number, number)]
        assert sorted(read(table.changes())) == sorted(expected)
        if number % 2:
            seen += read(table.changes(after=offsets))
            offsets = table.change_offsets()
    seen += read(table.changes(after=offsets))
    assert sorted(seen) == sorted(expected)
    assert [place[1] for place in places(table.changes())] == sorted(
        place[1] for place in places(table.changes())
    )


def test_stopping_within_a_published_generation_repeats_it(table: Any) -> None:
    flush_rows(table, rows((1, 1)))
    start = table.change_offsets()
    Region(table).publish(rows(*((i, i) for i in range(20_000))))
    batches = list(table.changes(after=start))
    assert len(batches) > 1
    for batch in batches[:-1]:
        last = batch.slice(batch.num_rows - 1).to_pylist()[0]
        place = [last["_position"], last["_generation"]]
        assert len(read(table.changes(after=place))) == 20_000
    last = batches[-1].slice(batches[-1].num_rows - 1).to_pylist()[0]
    assert read(table.changes(after=[last["_position"], last["_generation"]])) == []


def test_a_published_generation_that_was_collected_is_a_gap(table: Any) -> None:
    flush_rows(table, rows((1, 1)))
    start = table.change_offsets()
    region = Region(table)
    region.publish(rows((2, 2)))
    manifest = region.manifests.latest()
    kept = tuple(g for g in manifest.flushed_generations if g.generation != 2)
    region.manifests.commit(manifest, flushed_generations=kept)
    with pytest.raises(mw.ChangesCollectedError, match="generation 2, which was published"):
        read(table.changes(after=start))


def test_columns_added_later_are_null_in_earlier_entries(table: Any) -> None:
    upsert_rows(table, rows((1, 1)))
    lance.dataset(table.uri).add_columns(pa.field("extra", pa.int32()))
    again = mw.open_table(table.uri)
    assert again.changes().read_all()["extra"].to_pylist() == [None]


@each(
    "call, message",
    [
        (lambda t: t.changes(after=-1), "-1 is not a place in the change feed"),
        (lambda t: t.changes(after="3"), "'3' is not a place"),
        (lambda t: t.changes(after=[1, 2, 3]), r"\[1, 2, 3\] is not a place"),
        (lambda t: t.changes(after=True), "True is not a place"),
        (lambda t: t.changes(after=99), "has not reached WAL position 99 yet"),
        (lambda t: t.changes(until=[99, 1]), "has not reached WAL position 99 yet"),
        (lambda t: t.changes(after={"nowhere": 1}), "no region 'nowhere'; there are"),
        (lambda t: t.changes(region="nowhere"), "no region 'nowhere'"),
        (lambda t: t.changes(columns=["nothing"]), "unknown columns"),
    ],
)
def test_bad_places_are_refused(table: Any, call: Callable[[Any], Any], message: str) -> None:
    upsert_rows(table, rows((1, 1)))
    with pytest.raises(mw.InvalidCallError, match=message):
        call(table)


def test_one_place_does_not_do_for_several_regions(tmp_path: Path) -> None:
    table = mw.create_table(
        str(tmp_path / "table"), SCHEMA, primary_key="id", regions=[mw.bucket("id", 2)]
    )
    upsert_rows(table, rows(*((i, i) for i in range(9))))
    with pytest.raises(mw.InvalidCallError, match="a place in one region, but there are 2"):
        table.changes(after=1)


def test_a_column_with_a_name_of_the_feed_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("_change", pa.string())])
    table = mw.create_table(str(tmp_path / "table"), schema, primary_key="id")
    with pytest.raises(mw.InvalidCallError, match=r"columns \['_change'\] of its own"):
        table.changes()
    assert table.changes(columns=["id"]).read_all().num_rows == 0


def test_a_pinned_handle_has_no_changes(table: Any) -> None:
    table.snapshot_regions()
    pinned = mw.open_table(table.uri, version=mw.open_table(table.uri).version)
    with pytest.raises(mw.InvalidCallError, match="follow changes"):
        pinned.changes()


@pytest.mark.parametrize("seed", range(2 * SOAK))
def test_replaying_the_feed_from_any_place_rebuilds_the_table(tmp_path: Path, seed: int) -> None:
    """A replica that stops and goes on at random places, with flushes, new writers and published
    generations between, ends with the rows of the table."""
    rng = Random(seed)
    table = mw.create_table(
        str(tmp_path / "table"), SCHEMA, primary_key="id", regions=[mw.bucket("id", 2)]
    )
    replica: dict[int, int | None] = {}
    offsets: dict[str, list[int]] = {}
    writer = table.writer(memtable_rows=8)
    with as_another_process():
        for number in range(60):
            match rng.randrange(7):
                case 0:
                    writer.delete(keys(rng.randrange(12)))
                case 1:
                    writer.flush()
                case 2:
                    writer.close()
                    writer = table.writer(memtable_rows=8)
                case 3:
                    _follow(table, replica, offsets, rng)
                case _:
                    writer.upsert(
                        rows((rng.randrange(12), number), (rng.randrange(12, 24), number))
                    )
        writer.close()
        while _follow(table, replica, offsets, rng):
            pass
        held = table.scan(columns=["id", "n"]).read_all().to_pylist()
    assert replica == {row["id"]: row["n"] for row in held}


def test_a_follower_beside_writers_misses_nothing(tmp_path: Path) -> None:
    """Writers take over from each other, flush and merge meanwhile."""
    table = mw.create_table(
        str(tmp_path / "table"), SCHEMA, primary_key="id", regions=[mw.bucket("id", 2)]
    )
    replica: dict[int, int | None] = {}
    done = threading.Event()
    failures: list[BaseException] = []

    def follow() -> None:
        offsets: dict[str, list[int]] = {}
        handle, rng = mw.open_table(table.uri), Random(1)
        try:
            while not done.is_set() or _follow(handle, replica, offsets, rng):
                _follow(handle, replica, offsets, rng)
        except BaseException as error:
            failures.append(error)

    follower = threading.Thread(target=follow)
    follower.start()
    rng = Random(0)
    for number in range(6):
        with table.writer(memtable_rows=20) as writer:
            for _ in range(8):
                keys_written = rng.sample(range(40), 4)
                if rng.random() < 0.3:
                    writer.delete(keys(*keys_written))
                else:
                    writer.upsert(rows(*((key, number) for key in keys_written)))
            if number % 3 == 0:
                writer.flush()
                table.merge()
    done.set()
    follower.join(60)
    assert not follower.is_alive() and failures == []
    held = table.scan(columns=["id", "n"]).read_all().to_pylist()
    assert replica == {row["id"]: row["n"] for row in held}


def _follow(
    table: Any, replica: dict[int, int | None], offsets: dict[str, list[int]], rng: Random
) -> int:
    """Apply some of what is new; what is left out comes again next time."""
    batches = list(table.changes(after=offsets))
    for batch in batches[: rng.randint(1, 3)]:
        for row in batch.to_pylist():
            if row["_change"] == "delete":
                replica.pop(row["id"], None)
            else:
                replica[row["id"]] = row["n"]
            offsets[row["_region"]] = [row["_position"], row["_generation"]]
    return len(batches)
