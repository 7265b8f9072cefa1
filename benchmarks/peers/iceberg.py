"""Iceberg by PyIceberg: `upsert` into a table of a catalog in SQLite."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "val", DoubleType()),
    NestedField(3, "name", StringType()),
    identifier_field_ids=[1],
)


class Iceberg:
    """Files are rewritten by an upsert, as PyIceberg does."""

    packages = ("pyiceberg",)
    setting = "upsert, a commit each; the catalog in SQLite is synced, files are not"

    def __init__(self, folder: Path, base: pa.Table) -> None:
        self._catalog = SqlCatalog(
            "local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse"
        )
        self._catalog.create_namespace("mixed")
        self._table = self._catalog.create_table("mixed.events", _SCHEMA)
        self._table.append(base)

    def upsert(self, rows: pa.Table) -> None:
        self._table.upsert(rows)

    def aggregate(self) -> tuple[int, float]:
        """See `Peer.aggregate`; it has no aggregates of its own."""
        values = self._table.refresh().scan(selected_fields=("val",)).to_arrow()["val"]
        return len(values), pc.mean(values).as_py()

    def get(self, key: int) -> list[tuple[int, float, str]]:
        rows = self._table.refresh().scan(EqualTo("id", key)).to_arrow()
        return [tuple(row.values()) for row in rows.select(["id", "val", "name"]).to_pylist()]

    def close(self) -> None:
        self._catalog.close()
