"""`files()`, `snapshots()` and tags beside what was done to a table."""

from datetime import timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())])


@pytest.mark.parametrize("seed", range(3))
def test_files_are_those_that_hold_rows_of_now(uri: str, seed: int) -> None:
    random = Random(seed)
    table = mw.create_table(uri, SCHEMA, primary_key="id")
    writer = table.writer()
    writer.upsert({"id": [0], "n": [0]})
    writer.flush()
    entries, generations, flushed = 0, [1], 1
    for step in range(25):
        match random.choice(["upsert", "upsert", "delete", "flush", "merge"]):
            case "upsert":
                writer.upsert({"id": random.sample(range(5), 2), "n": [step, step]})
                entries += 1
            case "delete":
                writer.delete([random.randrange(5)])
                entries += 1
            case "flush" if entries:
                writer.flush()
                entries, flushed = 0, flushed + 1
                generations.append(flushed)
            case "merge":
                table.merge()
                generations = []
        files = table.files().to_pylist()
        assert sum(one["kind"] == "wal" for one in files) == entries
        found = {one["number"] for one in files if one["kind"] == "generation"}
        assert found == set(generations)
        places = [Path(uri, one["path"]) for one in files]
        assert all(place.is_file() for place in places)
        sizes = [
            (one["bytes"], place.stat().st_size) for one, place in zip(files, places, strict=True)
        ]
        assert all(said in (None, size) for said, size in sizes)
    writer.close()


def test_names_are_those_that_can_be_read(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, primary_key="id")
    version = table.snapshot_regions()
    table.tags.create("first", version)
    with pytest.raises(mw.InvalidCallError, match="there is a tag 'first' already"):
        table.tags.create("first", table.snapshot_regions())
    assert table.tags.list() == {"first": version}
    table.checkpoint("kept")
    table.checkpoint("gone", expires=timedelta(microseconds=1))
    names = table.snapshots()["name"].to_pylist()
    assert sorted(names) == ["first", "kept"]
    for name in names:
        assert table.as_of(name).to_arrow().num_rows == 0
