"""Tasks read the snapshot of their reader, and a share of it says nothing of other regions."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.spark.source import MemWalDataSource
from tests.soak import SOAK

SCHEMA = pa.schema({"id": pa.int64(), "word": pa.string()})


def write(table: mw.Table, rng: random.Random, word: str) -> None:
    """Rows and deletes, of which some are flushed and some of these merged."""
    with table.writer() as writer:
        for _ in range(3):
            keys = rng.sample(range(200), rng.choice([1, 40, 150]))
            writer.upsert({"id": keys, "word": [f"{word}{key % 7}" for key in keys]})
            writer.delete(rng.sample(range(200), 5))
            if rng.random() < 0.7:
                writer.flush()
            if rng.random() < 0.5:
                table.merge()


@pytest.mark.parametrize("seed", range(2 * SOAK))
def test_rows_are_those_of_the_plan_whatever_is_written_and_merged_meanwhile(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    table = mw.create_table(tmp_path / "table", SCHEMA, "id", [mw.bucket("id", 5)])
    write(table, rng, "a")
    for size in ({}, {"rowsPerPartition": "30"}):
        for _ in range(2):
            expected = table.scan(["id", "word"]).read_all().sort_by("id")
            source = MemWalDataSource({"path": table.uri, **size})
            reader = source.reader(source.schema())
            function = pickle.dumps(reader)  # Spark does it before it asks for the shares
            write(table, rng, "b")
            shares = [pickle.dumps(share) for share in reader.partitions()]
            write(table, rng, "c")
            table.merge()
            batches = [
                batch
                for share in shares
                for batch in pickle.loads(function).read(pickle.loads(share))
            ]
            found = pa.Table.from_batches([batch.cast(SCHEMA) for batch in batches], SCHEMA)
            assert found.sort_by("id").to_pydict() == expected.to_pydict()


def test_a_share_is_as_small_however_many_regions_there_are(tmp_path: Path) -> None:
    sizes = []
    for regions in (2, 40):
        table = mw.create_table(tmp_path / str(regions), SCHEMA, "id", [mw.bucket("id", regions)])
        write(table, random.Random(1), "a")
        options = {"path": table.uri, "rowsPerPartition": "1000"}
        source = MemWalDataSource(options)
        shares = source.reader(source.schema()).partitions()
        sizes.append(max(len(pickle.dumps(share)) for share in shares))
    assert max(sizes) < 400
