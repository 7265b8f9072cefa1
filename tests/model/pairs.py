"""Rows of two columns, and every way to read them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.model.writing import session_of

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64())])


def rows(*pairs: tuple[int, int | None]) -> pa.Table:
    """A batch of (id, n) pairs, in order."""
    ids, numbers = zip(*pairs, strict=True)
    return pa.table({"id": ids, "n": numbers}, schema=SCHEMA)


def keys(*ids: int) -> pa.Table:
    """A batch of keys."""
    return pa.table({"id": pa.array(ids, pa.int64())})


def pairs_of(table: pa.Table) -> dict[int, int | None]:
    """A result as a dict; a key that was returned twice fails."""
    found = dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))
    assert len(found) == table.num_rows, f"keys were returned twice: {table['id'].to_pylist()}"
    return found


def read(table: Any, consistency: str = "strong") -> dict[int, int | None]:
    """The rows of a scan."""
    return pairs_of(table.scan(consistency=consistency).read_all())


def select(table: Any, where: str = "", limit: int | None = None) -> dict[int, int | None]:
    """The rows of a SQL query; scan and SQL must agree where both can be asked."""
    session = session_of("t", table)
    sql = "SELECT * FROM t"
    sql += f" WHERE {where}" if where else ""
    sql += f" LIMIT {limit}" if limit is not None else ""
    found = pairs_of(session.sql(sql).to_arrow_table())
    if limit is None:
        assert pairs_of(table.scan(filter=where or None).read_all()) == found
    return found


def get(table: Any, *ids: int) -> dict[int, int | None]:
    """The rows of a point lookup, and of each key alone."""
    found = pairs_of(table.get(list(ids)))
    for key in ids:
        alone = pairs_of(table.get([key]))
        assert alone == ({key: found[key]} if key in found else {})
        assert select(table, f"id = {key}") == alone
    return found


def count(table: Any) -> int:
    """SELECT count(*)."""
    session = session_of("t", table)
    return int(session.sql("SELECT count(*) FROM t").to_arrow_table().column(0)[0].as_py())
