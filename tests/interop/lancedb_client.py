"""LanceDB's own tables: the client that writes and reads beside us."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import lancedb
import pyarrow as pa
from lancedb._lancedb import LsmWriteSpec

import memwal_sql as mw
from memwal_sql.maintain.details import Rewrite, change_details
from memwal_sql.storage.base.memwal_index import IndexDetails
from planner.regions.field import RegionField

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string())])
UNSHARDED_ID = UUID("aa48498d-ac91-59e2-8452-69f46010ace2")
Rows = dict[Any, Any]
# LanceDB waits so long for more rows before it writes an entry.
_HASTY = {"max_wal_flush_interval_ms": "1"}


def rows(values: Rows, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Rows of two columns, by key."""
    columns = [list(values), list(values.values())]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


def by_key(table: pa.Table) -> Rows:
    """The inverse of `rows`; every key must come once."""
    keys, values = (column.to_pylist() for column in table.columns)
    assert len(set(keys)) == len(keys), f"keys come twice: {sorted(keys)}"
    return dict(zip(keys, values, strict=True))


def folder(path: Path, name: str = "t") -> str:
    """Where LanceDB keeps the table `name` of the database at `path`."""
    return str(path / f"{name}.lance")


# Handles that a test has opened.
OPEN: list[Handle] = []


class Handle:
    """One handle of LanceDB, which writes one bucket at a time."""

    def __init__(self, table: Any) -> None:
        self.table = table
        OPEN.append(self)

    def upsert(self, values: Rows, schema: pa.Schema = SCHEMA) -> None:
        """Upsert rows of one bucket."""
        merge = self.table.merge_insert([]).when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows(values, schema))

    def read(self) -> Rows:
        """What LanceDB sees: the base, flushed generations, and its own unflushed rows."""
        return by_key(self.table.search().to_arrow())

    def close(self) -> None:
        """Let go of the region; LanceDB flushes then."""
        self.table.close_lsm_writers()


def open_handle(path: Path, name: str = "t") -> Handle:
    """Another handle, as another process would have it."""
    db = lancedb.connect(path, read_consistency_interval=timedelta(0))
    return Handle(db.open_table(name))


def made_by_us(path: Path, field: RegionField, schema: pa.Schema = SCHEMA) -> Any:
    """A table of ours in the place where LanceDB finds it."""
    table = mw.create_table(folder(path), schema, schema.names[0], regions=[field])

    def hasty(rewrite: Rewrite) -> IndexDetails:
        options = {**rewrite.details.writer_config_defaults, **_HASTY}
        return replace(rewrite.details, writer_config_defaults=options)

    change_details(table.context, "test", hasty)
    return mw.open_table(table.uri)


def create(
    path: Path, spec: LsmWriteSpec, base: Rows | None = None, schema: pa.Schema = SCHEMA
) -> Handle:
    """A table that LanceDB makes, with rows in the base."""
    db = lancedb.connect(path, read_consistency_interval=timedelta(0))
    table = db.create_table("t", rows(base or {}, schema), schema=schema)
    table.set_unenforced_primary_key(schema.names[0])
    table.set_lsm_write_spec(spec.with_writer_config_defaults(_HASTY))
    return Handle(table)


def create_emptied(path: Path, keys: Iterable[int]) -> tuple[Handle, mw.Table]:
    """A table with a region a key, which LanceDB wrote and we merged and collected: no manifest has
    the region's value, and no row gives it."""
    handle = create(path, LsmWriteSpec.identity("id"))
    for key in keys:
        handle.upsert({key: "theirs"})
        handle.close()
    table = mw.open_table(folder(path))
    table.merge()
    for _ in range(2):
        table.collect_garbage(older_than=timedelta(0), versions_older_than=timedelta(0))
    return handle, table
