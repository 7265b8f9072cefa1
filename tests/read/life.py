"""A table and what happens to it: writes, merges, and plain Lance beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from tests.model.resident import another_store

WIDTH = 4
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("val", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), WIDTH)),
    ]
)
KEYS = 3_000
Rows = list[tuple[object, ...]]


class Life:
    """A table and what happens to it, drawn by a seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.uri = str(folder / "t")
        lance.write_dataset(self.rows(range(KEYS)), self.uri, max_rows_per_file=KEYS // 3)
        self.table = mw.enable(self.uri, primary_key="id")
        self.appended = KEYS

    def step(self) -> str:
        """Something that happens to the table; what."""
        happen: list[Callable[[], object]] = [
            self.write_and_merge,
            self.write_and_merge,
            self.write,
            self.table.merge,
            self.delete,
            self.append,
            self.compact,
            self.table.compact,
            self.restore,
        ]
        one = self.random.choices(happen, [6, 6, 4, 4, 4, 2, 1, 2, 4])[0]
        one()
        return getattr(one, "__name__", "")

    def write(self) -> None:
        """One or two generations."""
        for _ in range(self.random.randint(1, 2)):
            with self.table.writer(durable=False) as writer:
                keys = self.random.sample(range(KEYS + 500), 150)
                writer.upsert(self.rows(keys))
                if self.random.random() < 0.4:
                    writer.delete(self.random.sample(range(KEYS), 20))
                writer.flush()

    def write_and_merge(self) -> None:
        self.write()
        self.table.merge()

    def delete(self) -> None:
        """Single rows, or nearly all of a part."""
        low = self.random.randrange(KEYS)
        condition = self.random.choice(
            [f"id % 97 = {low % 97}", f"id > {low} AND id < {low + 900}"]
        )
        lance.dataset(self.uri).delete(condition)

    def append(self) -> None:
        """Keys that nothing else has."""
        self.appended += 10_000
        rows = self.rows(range(self.appended, self.appended + 40))
        schema = lance.dataset(self.uri).schema
        lance.write_dataset(rows.cast(schema), self.uri, mode="append")

    def compact(self) -> None:
        lance.dataset(self.uri).optimize.compact_files(target_rows_per_fragment=KEYS // 2)

    def restore(self) -> None:
        """One of the last versions, which has rows that were deleted since."""
        versions = [one["version"] for one in lance.dataset(self.uri).versions()]
        lance.dataset(self.uri, version=self.random.choice(versions[-4:])).restore()

    def rows(self, keys: Any) -> pa.Table:
        """New rows with these keys."""
        vectors = pa.array(self.numbers.normal(size=len(keys) * WIDTH).astype(np.float32))
        values = [f"{key}: {self.random.random():.6f}" for key in keys]
        columns = [list(keys), values, pa.FixedSizeListArray.from_arrays(vectors, WIDTH)]
        return pa.table(columns, schema=SCHEMA)


def seen(table: mw.Table, keys: list[int], query: list[float]) -> list[Rows]:
    """What a scan, some lookups and a vector search find; asked twice, and told as one."""
    answers = []
    for _ in range(2):
        scan = table.scan(columns=["id", "val"]).read_all().sort_by("id")
        rows = [table.get([key], columns=["id", "val"]) for key in keys]
        near = table.vector_search("vec", query, 7, columns=["id", "val"])
        answers.append([tuples(scan), *map(tuples, rows), tuples(near)])
    assert answers[0] == answers[1]
    return answers[0]


def tuples(table: pa.Table) -> Rows:
    return [tuple(row.values()) for row in table.to_pylist()]


def fresh(uri: str, version: int | None, keys: list[int], query: list[float]) -> list[Rows]:
    """The same by a handle that nothing was kept for."""
    with another_store():
        return seen(mw.open_table(uri, version=version), keys, query)
