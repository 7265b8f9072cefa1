"""The tables that golden plans are drawn over, each beside the plain rows it should hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import memwal_sql as mw

KEYED = pa.schema(
    [pa.field("pk", pa.string(), False), pa.field("val", pa.int64()), pa.field("txt", pa.string())]
)
PAIRED = pa.schema(
    [
        pa.field("day", pa.int32(), False),
        pa.field("id", pa.int64(), False),
        pa.field("val", pa.int64()),
    ]
)


class Built:
    """A table under construction and the rows that it holds, by key."""

    def __init__(self, table: Any, keys: list[str]) -> None:
        self.table = table
        self._keys = keys
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._writers: dict[str | None, Any] = {}

    def writer(self, region: str | None = None) -> Any:
        """The open writer (of a manual region)."""
        if region not in self._writers:
            named = {} if region is None else {"region": region}
            self._writers[region] = self.table.writer(**named)
        return self._writers[region]

    def seed(self, *rows: dict[str, Any]) -> None:
        """Note rows that are in the base table already."""
        for row in rows:
            self._rows[tuple(row[k] for k in self._keys)] = row

    def upsert(self, *rows: dict[str, Any], region: str | None = None) -> None:
        """Write rows through the writer."""
        self.writer(region).upsert(pa.Table.from_pylist(list(rows), schema=self.table.schema))
        self.seed(*rows)

    def delete(self, *keys: tuple[Any, ...], region: str | None = None) -> None:
        """Delete keys through the writer."""
        columns = [self.table.schema.field(k) for k in self._keys]
        named = [dict(zip(self._keys, key, strict=True)) for key in keys]
        self.writer(region).delete(pa.Table.from_pylist(named, schema=pa.schema(columns)))
        for key in keys:
            self._rows.pop(key, None)

    def rows(self) -> pa.Table:
        """The rows the table should hold."""
        return pa.Table.from_pylist(list(self._rows.values()), schema=self.table.schema)

    def close(self) -> None:
        """Close the writers; call it last, as that flushes their MemTables."""
        for writer in self._writers.values():
            writer.close()


def _row(pk: str, val: int | None, txt: str | None = "x") -> dict[str, Any]:
    return {"pk": pk, "val": val, "txt": txt}


def two_regions(folder: Path) -> Built:
    """The set-up of specification 2, "Query Execution".

    Region A: generation 1 flushed, 2 in memory. Region B: 1 and 2 flushed, 3 in memory.
    """
    uri = str(folder / "two_regions")
    seeds = [_row(f"{r}{i}", i) for r in "ABC" for i in range(4)]
    _write_base(uri, seeds, KEYED)
    table = mw.enable(uri, primary_key="pk", regions=[mw.truncate("pk", 1, name="region")])
    built = Built(table, ["pk"])
    built.seed(*seeds)
    built.upsert(_row("B1", 10), _row("B4", 40))
    built.writer().flush()
    built.upsert(_row("B2", 20), _row("A1", 11))
    built.delete(("B4",))
    built.writer().flush()
    built.upsert(_row("A2", 12), _row("B1", 100), _row("A5", None, None))
    built.delete(("A3",), ("B3",))
    return built


def composite_key(folder: Path) -> Built:
    """A key of two columns, regions by one of them."""
    uri = str(folder / "composite_key")
    seeds = [{"day": d, "id": i, "val": d * 10 + i} for d in (1, 2) for i in range(3)]
    _write_base(uri, seeds, PAIRED)
    table = mw.enable(uri, primary_key=["day", "id"], regions=[mw.identity("day")])
    built = Built(table, ["day", "id"])
    built.seed(*seeds)
    built.upsert({"day": 1, "id": 1, "val": 111}, {"day": 2, "id": 7, "val": 27})
    built.writer().flush()
    built.upsert({"day": 1, "id": 2, "val": 112})
    built.delete((2, 0))
    return built


def manual_regions(folder: Path) -> Built:
    """Regions that the caller names: nothing can be pruned, a lookup asks all of them."""
    uri = str(folder / "manual_regions")
    seeds = [_row(f"{r}{i}", i) for r in "AB" for i in range(3)]
    _write_base(uri, seeds, KEYED)
    table = mw.enable(uri, primary_key="pk", regions=mw.manual())
    built = Built(table, ["pk"])
    built.seed(*seeds)
    # Plans have regions in the order of their ids, and those of names differ from table to table.
    first, second = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "ba")
    built.upsert(_row("A1", 11), region=first)
    built.writer(first).flush()
    built.upsert(_row("B1", 21), region=second)
    built.delete(("B2",), region=second)
    return built


def unsharded(folder: Path) -> Built:
    """One region, and no rows but those of the base table and one flushed generation."""
    uri = str(folder / "unsharded")
    seeds = [_row(f"k{i}", i) for i in range(5)]
    _write_base(uri, seeds, KEYED)
    built = Built(mw.enable(uri, primary_key="pk"), ["pk"])
    built.seed(*seeds)
    built.upsert(_row("k1", 10))
    built.writer().flush()
    return built


def _write_base(uri: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """An ordinary Lance table, as `enable` finds it."""
    lance.write_dataset(pa.Table.from_pylist(rows, schema=schema), uri)


TABLES: dict[str, Callable[[Path], Built]] = {
    build.__name__: build for build in (two_regions, composite_key, manual_regions, unsharded)
}
