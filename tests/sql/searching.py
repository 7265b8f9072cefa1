"""A table to search in SQL, beside the rows that are live in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datafusion
import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import memwal_sql as mw

DIMENSION = 4
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("body", pa.string()),
        pa.field("title", pa.string()),
        pa.field("lang", pa.string()),
        pa.field("v", pa.list_(pa.float32(), DIMENSION)),
    ]
)
WORDS = ("write", "ahead", "log", "read", "merge", "tree")


class Searched:
    """Base table, generations and a MemTable in two regions; registered as `events` and `"My t"`,
    with a table of labels to join with."""

    def __init__(self, folder: Path) -> None:
        self._rng = np.random.default_rng(5)
        self._rows: dict[int, dict[str, Any]] = {}
        uri = str(folder / "events")
        lance.write_dataset(self._write(range(300)), uri, schema=SCHEMA)
        self.table = mw.enable(uri, primary_key="id", regions=[mw.bucket("id", 2)])
        self.table.create_index("body", "FTS")
        self.table.create_index("v", "IVF_FLAT", num_partitions=2)
        self.writer = self.table.writer()
        for keys in (range(250, 320), range(10, 40)):
            self.writer.upsert(self._write(keys))
            self.writer.flush()
        self.writer.upsert(self._write(range(310, 330)))
        self.writer.delete([5, 15, 315])
        for key in (5, 15, 315):
            del self._rows[key]
        self.ctx = self.context()

    def context(self, options: dict[str, str] | None = None) -> datafusion.SessionContext:
        """A session with these tables and options of DataFusion."""
        config = datafusion.SessionConfig(options).with_target_partitions(2)
        ctx = datafusion.SessionContext(config)
        mw.register(ctx, "events", self.table)
        mw.register(ctx, '"My t"', self.table)
        labels = pa.table({"lang": ["en", "de"], "label": ["English", "German"]})
        ctx.register_record_batches("labels", [labels.to_batches()])
        return ctx

    @property
    def rows(self) -> pa.Table:
        """The live rows."""
        return pa.Table.from_pylist(list(self._rows.values()), schema=SCHEMA)

    def sql(self, query: str, **values: Any) -> pa.Table:
        """The result of a query; errors as they were raised."""
        with mw.memwal_errors():
            return self.ctx.sql(query, **values).to_arrow_table()

    def nearest(self, vector: list[float], k: int, where: pc.Expression | None = None) -> list[int]:
        """The keys of the `k` live rows nearest to a vector, among those that a condition keeps."""
        rows = self.rows if where is None else self.rows.filter(where)
        vectors = rows["v"].combine_chunks().flatten().to_numpy().reshape(-1, DIMENSION)
        distances = ((vectors - np.asarray(vector, np.float32)) ** 2).sum(axis=1)
        return rows["id"].take(np.argsort(distances, kind="stable")[:k]).to_pylist()

    def scores(self, folder: Path, query: str, column: str = "body") -> dict[int, float]:
        """By key: what one Lance index over the live rows scores."""
        whole = lance.write_dataset(self.rows, str(folder / "whole"), mode="overwrite")
        whole.create_scalar_index(column, "INVERTED")
        query_of = {"columns": [column], "query": query}
        found = whole.to_table(columns=["id"], full_text_query=query_of, limit=1000)
        return dict(zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True))

    def _write(self, keys: range) -> pa.Table:
        for key in keys:
            words = self._rng.choice(WORDS, self._rng.integers(1, 6))
            self._rows[key] = {
                "id": key,
                "body": " ".join(words),
                "title": str(words[0]),
                "lang": "en" if key % 3 else "de",
                "v": self._rng.normal(size=DIMENSION).astype(np.float32).tolist(),
            }
        return pa.Table.from_pylist([self._rows[key] for key in keys], schema=SCHEMA)
