"""The calls that faults end, and a table that has something to do for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import datafusion
import pyarrow as pa

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from tests.model.process import as_another_process

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("n", pa.int64()),
        ("words", pa.string()),
        ("v", pa.list_(pa.float32(), 4)),
        pa.field("m", pa.int64(), False),
    ]
)
KEYS = range(12)
NEW = (1, 2, 5, 6, 20, 21, 22, 23)
NO_TIME = timedelta(0)


def rows(n: int, *keys: int) -> pa.Table:
    columns = {
        "id": list(keys),
        "n": [n] * len(keys),
        "words": ["word"] * len(keys),
        "v": [[float(key), 1.0, 2.0, 3.0] for key in keys],
        "m": [1] * len(keys),
    }
    return pa.table(columns, SCHEMA)


def made(uri: str, regions: str | None = None, options: dict[str, str] | None = None) -> mw.Table:
    """A table with a merged generation, one to merge, and rows that are not flushed."""
    table = mw.create_table(uri, SCHEMA, "id", regions, storage_options=options)
    with table.writer() as writer:
        for n in (1, 2):
            writer.upsert(rows(n, *KEYS))
            writer.flush()
            if n == 1:
                table.merge()
                table.create_index("words", "FTS")
                table.checkpoint("before")
                table.tags.create("old", table.version)
        writer.upsert(rows(3, *KEYS[::3]))
    return table


@dataclass
class Program:
    """What a program holds: a table, and a writer once it needs one."""

    table: mw.Table
    durable: bool = True
    _writer: mw.TableWriter | None = None

    @property
    def writer(self) -> mw.TableWriter:
        if self._writer is None:
            self._writer = self.table.writer(durable=self.durable)
        return self._writer

    def claim(self) -> None:
        """Have the writer claim all regions; the rows stay as they are."""
        self.writer.upsert(rows(3, 0, 3))
        self.writer.upsert(rows(2, 1, 2))
        self.writer.sync()

    def reopen(self) -> None:
        """Take another writer from now on."""
        if self._writer is not None:
            with suppress(mw.MemWalError):
                self._writer.close()
        self._writer = None

    def close(self) -> None:
        self.reopen()
        with suppress(mw.MemWalError):
            self.table.close()

    def sql(self, text: str) -> object:
        context = datafusion.SessionContext()
        mw.register(context, "t", self.table)
        return mw.sql(context, text).to_arrow_table()

    def overwrite(self) -> None:
        """As Spark does."""
        task = self.table.stager("job", RowForm(), replaces=True).stage(rows(9, 7).to_batches())
        self.table.replace_staged([task])

    def publish(self) -> None:
        task = self.table.stager("job", RowForm()).stage(rows(9, *NEW).to_batches())
        self.table.publisher().publish([task])


WORK: Mapping[str, Callable[[Program], object]] = {
    "upsert": lambda p: p.writer.upsert(rows(9, *NEW)),
    "buffered upsert": lambda p: (p.writer.upsert(rows(9, *NEW)), p.writer.sync()),
    "atomic upsert": lambda p: p.writer.upsert(rows(9, *NEW), atomic=True),
    "delete": lambda p: p.writer.delete([1, 2, 5, 6]),
    "delete_where": lambda p: p.writer.delete_where("id in (1, 2, 5, 6)"),
    "insert": lambda p: p.writer.insert(rows(9, *NEW[4:])),
    "flush": lambda p: (p.writer.upsert(rows(9, 1)), p.writer.flush()),
    "INSERT": lambda p: p.sql("INSERT INTO t (id, n, m) VALUES (7, 7, 7)"),
    "UPDATE": lambda p: p.sql("UPDATE t SET n = n + 1 WHERE id = 1"),
    "DELETE": lambda p: p.sql("DELETE FROM t WHERE id = 1"),
    "INSERT OVERWRITE": lambda p: p.sql("INSERT OVERWRITE t SELECT id + 1, n, words, v, m FROM t"),
    "replace_rows": lambda p: p.table.replace_rows(rows(9, 7)),
    "replace_staged": Program.overwrite,
    "publish": Program.publish,
    "restore": lambda p: p.table.restore(checkpoint="before"),
    "add_columns": lambda p: p.table.add_columns(pa.field("k", pa.int64())),
    "add computed columns": lambda p: p.table.add_columns({"k": "n + 1"}),
    "add columns in tasks": lambda p: p.table.add_columns_in_tasks(
        {"k": "n + 1"}, lambda shares: [p.table.compute_columns(share) for share in shares], 2
    ),
    "drop_columns": lambda p: p.table.drop_columns("words"),
    "rename_column": lambda p: p.table.rename_column("n", "k"),
    "set_nullable": lambda p: p.table.set_nullable("m"),
    "ALTER TABLE": lambda p: p.sql("ALTER TABLE t ADD COLUMN k BIGINT"),
    "create_index": lambda p: p.table.create_index("n", "BTREE", name="o", replace=True),
    "create_index FTS": lambda p: p.table.create_index("words", "FTS", name="w", replace=True),
    "drop_index": lambda p: p.table.drop_index("words_idx"),
    "build_indexes": lambda p: p.table.build_indexes(),
    "merge": lambda p: p.table.merge(),
    "merge in tasks": lambda p: p.table.merge_in_tasks(
        lambda shares: [p.table.merge_share(share) for share in shares], 2
    ),
    "compact": lambda p: (p.table.merge(), p.table.compact()),
    "snapshot_regions": lambda p: p.table.snapshot_regions(),
    "checkpoint": lambda p: p.table.checkpoint("now"),
    "drop_checkpoint": lambda p: p.table.drop_checkpoint("before"),
    "create a tag": lambda p: p.table.tags.create("now", p.table.version),
    "delete a tag": lambda p: p.table.tags.delete("old"),
    "collect_garbage": lambda p: p.table.collect_garbage(
        older_than=NO_TIME, versions_older_than=NO_TIME
    ),
}


@dataclass(frozen=True)
class State:
    """What another process sees: the rows by key, and the rest."""

    rows: Mapping[int, Mapping[str, Any]]
    rest: tuple[Any, ...]


def state_of(uri: str, options: dict[str, str] | None = None) -> State:
    with as_another_process():
        table = mw.open_table(uri, storage_options=options)
        found = table.to_arrow()
        indexes = table.indexes().select(["name", "maintained"]).to_pylist()
        names = table.checkpoints()["name"].to_pylist(), list(table.tags)
    state = State({row["id"]: row for row in found.to_pylist()}, (found.schema, indexes, *names))
    assert len(state.rows) == found.num_rows, "a key is there twice"
    return state
