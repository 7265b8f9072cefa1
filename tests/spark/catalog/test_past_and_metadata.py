"""Options `version`, `timestamp` and `metadata` of a read, without Spark's processes."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import memwal_sql as mw
from memwal_sql.registration import METADATA_TABLES
from memwal_sql.spark.metadata_reader import MetadataReader
from memwal_sql.spark.source import MemWalDataSource

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


def read(uri: str, **options: str) -> list[int]:
    """The keys that the options read."""
    source = MemWalDataSource({"path": uri, **options})
    reader = source.reader(source.schema())
    found = (batch for share in reader.partitions() for batch in reader.read(share))
    return sorted(key for batch in found for key in batch["id"].to_pylist())


def test_a_read_is_of_a_version_a_tag_a_checkpoint_or_a_time(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "table", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1, 2], "val": ["a", "b"]}))
        writer.flush()
        version = table.snapshot_regions()
        table.tags.create("monday", version)
        writer.upsert(pa.table({"id": [3], "val": ["c"]}))
        table.checkpoint("tuesday")
        then = datetime.now(UTC)
        time.sleep(0.05)  # the clock of files goes in steps of up to 0.01 s
        writer.delete([1, 3])
        writer.flush()
        table.merge()
        uri = table.uri
        assert read(uri) == [2]
        assert read(uri, version=str(version)) == read(uri, version="monday") == [1, 2]
        assert read(uri, version="tuesday") == [1, 2, 3]
        assert read(uri, timestamp=then.isoformat()) == [1, 2, 3]
        assert read(uri, timestamp=then.isoformat(), filter="id = 3") == [3]
        table.tags.delete("monday")
        table.tags.create("monday")
        assert read(uri, version="monday") == [2]


def test_metadata_tables_are_those_of_the_table(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "table", SCHEMA, "id", "bucket(id, 2)")
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1, 2], "val": ["a", "b"]}))
        writer.flush()
    for name, (_, load) in METADATA_TABLES.items():
        source = MemWalDataSource({"path": table.uri, "metadata": name})
        reader = source.reader(source.schema())
        assert isinstance(reader, MetadataReader)
        batches = list(reader.read(InputPartition(0)))
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert rows == load(table).to_pylist(), name
