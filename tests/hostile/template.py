"""A table with some of everything that is ever on disk, as a process that died leaves it.

Run as `python -m tests.hostile.template FOLDER`: makes the table `FOLDER/t`, `FOLDER/other`, with
which it has transactions, and `FOLDER/earlier`, a copy of `t` from before its last writes.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pyarrow as pa

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.transactions import Transactions

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("vector", pa.list_(pa.float32(), 4)),
        ("doc", pa.json_()),
        ("again", pa.int32()),
    ]
)


MARK = "marked"
"""A text in each value of the JSON column."""


def rows(*keys: int, text: str = "quick fox") -> pa.Table:
    """Rows with these keys."""
    vectors = [[float(key)] * 4 for key in keys]
    docs = pa.array([f'{{"{MARK}":{key},"of":["{text}"]}}' for key in keys])
    columns = {
        "id": keys,
        "text": [f"{text} {key}" for key in keys],
        "vector": vectors,
        "doc": pa.ExtensionArray.from_storage(pa.json_(), docs),
        "again": [key % 7 for key in keys],
    }
    return pa.table(columns, schema=SCHEMA)


def make(folder: Path) -> None:
    """Make table and copy; a writer is left open."""
    uri = folder / "t"
    table = mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", 2)])
    with table.writer() as writer:
        writer.upsert(rows(*range(20)))
        writer.flush()
        table.merge()
    table.drop_columns("again")
    table.add_columns(SCHEMA.field("again"))
    with table.writer() as writer:
        table.create_index("text", "FTS")
        table.create_index("vector", "IVF_FLAT", num_partitions=1)
        writer.upsert(rows(*range(5, 40, 3), text="brown fox"))
        writer.flush()
        shutil.copytree(uri, folder / "earlier")
        other = mw.create_table(folder / "other", SCHEMA, "id")
        _transactions(table, other, range(20, 30))
        table.checkpoint("held")
        table.tags.create("tagged", table.snapshot_regions())
        writer.upsert(rows(*range(5, 40, 4), text="lazy dog"))
        writer.delete([1, 2])
        writer.flush()
    stager = table.stager("published", RowForm())
    table.publisher().publish([stager.stage(rows(55, 56).to_batches())], BatchMark("q", 0))
    table.stager("staged", RowForm()).stage(rows(65, 66).to_batches())
    writer = table.writer()
    for text in ("red", "green", "blue"):
        writer.upsert(rows(*range(4, 16), *range(50, 60), text=text))
        writer.delete([3, 60])
        writer.upsert(rows(*range(60, 70), text=text))
    _transactions(table, other, range(20, 26))
    writer.upsert(rows(*range(10, 30, 3), text="noted"))
    _transactions(table, other, range(22, 28))
    writer.upsert(rows(*range(80, 84)), atomic=True)
    store = open_store(str(uri))
    before = set(Transactions(store).ids())
    writer.upsert(rows(*range(70, 80)), atomic=True)
    Transactions(store).delete(set(Transactions(store).ids()) - before)  # nobody was told


def _transactions(table: mw.Table, other: mw.Table, keys: range) -> None:
    """One that has its record in the table, and one that has it in the other one."""
    for first, second in ((table, other), (other, table)):
        with mw.transaction(first, second) as transaction:
            for one in (first, second):
                transaction.upsert(one, rows(*keys, text=f"by {first.uri[-5:]}"))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
    os._exit(0)
