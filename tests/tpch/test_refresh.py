"""All 22 queries after each refresh function, and after UPDATE and MERGE; but for a soak each query
after one of these. The tables are compared each time."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.soak import IS_SOAK, in_turns
from tests.sqllogictest import files
from tests.sqllogictest.records import records
from tests.tpch.database import Database

_SCALE = 0.1 if IS_SOAK else 0.01
# Of 32 order keys in a row, dbgen leaves those from the ninth on to the refresh functions.
_FIRST_FREE = 8
_MERGE = """
    MERGE INTO lineitem AS t USING newer AS s
    ON t.l_orderkey = s.l_orderkey AND t.l_linenumber = s.l_linenumber
    WHEN MATCHED AND s.l_discount > CAST(0.05 AS DECIMAL(15, 2)) THEN DELETE
    WHEN MATCHED THEN UPDATE SET l_quantity = s.l_quantity, l_shipmode = t.l_shipmode || '?'
    WHEN NOT MATCHED THEN INSERT *
"""


@pytest.fixture(scope="module")
def queries(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    crate = files.unpack(tmp_path_factory.mktemp("crate"))
    folder = files.path_of(crate, "tpch/answers")
    found = [one.sql for n in range(1, 23) for one in records(folder / f"q{n}.slt.part")]
    assert len(found) == 22
    return found


def refresh_rows(database: Database, table: str, part: int) -> pa.Table:
    """New rows with free order keys, made of those that are there (RF1)."""
    key = f"{table[0]}_orderkey"
    price = "o_totalprice" if table == "orders" else "l_extendedprice"  # for no ties in an order
    return database.duckdb.sql(
        f"SELECT * REPLACE ({key} + {_FIRST_FREE} AS {key}, "
        f"CAST({price} + 1.37 AS DECIMAL(15, 2)) AS {price}) FROM {table} WHERE {key} % 32 = {part}"
    ).to_arrow_table()


def newer_rows(database: Database, part: int) -> pa.Table:
    """Line items that are there with other quantities, and as many with free keys."""
    of_part = f"FROM lineitem WHERE l_orderkey % 32 = {part}"
    return database.duckdb.sql(
        f"SELECT * REPLACE (CAST(l_quantity + 1 AS DECIMAL(15, 2)) AS l_quantity) {of_part} "
        f"UNION ALL SELECT * REPLACE (l_orderkey + {2 * _FIRST_FREE} AS l_orderkey, "
        f"CAST(l_extendedprice + 2.41 AS DECIMAL(15, 2)) AS l_extendedprice) {of_part}"
    ).to_arrow_table()


def test_answers_are_those_of_duckdb_after_every_refresh(
    tmp_path: Path, queries: list[str]
) -> None:
    database = Database(tmp_path, _SCALE, seed=1)
    for part in range(4 if IS_SOAK else 1):
        for name in ("orders", "lineitem"):  # RF1
            database.upsert(name, refresh_rows(database, name, part))
        database.move()
        database.check(in_turns(queries, 0, 3))
        # RF2
        old = f"o_orderkey % 32 = {7 - part}"
        database.run(f"DELETE FROM lineitem USING orders WHERE l_orderkey = o_orderkey AND {old}")
        database.run(f"DELETE FROM orders WHERE {old}")
        database.move()
        database.check(in_turns(queries, 1, 3))
        database.run(
            "UPDATE lineitem SET l_discount = l_discount + CAST(0.01 AS DECIMAL(15, 2)), "
            "l_shipmode = 'MAIL' "
            "WHERE l_suppkey IN (SELECT s_suppkey FROM supplier WHERE s_acctbal < 0)"
        )
        database.run(
            "UPDATE orders SET o_totalprice = t.total FROM (SELECT l_orderkey, "
            "CAST(sum(l_extendedprice * (1 - l_discount)) AS DECIMAL(15, 2)) AS total "
            "FROM lineitem GROUP BY l_orderkey) AS t WHERE l_orderkey = o_orderkey"
        )
        database.move()
        database.put("newer", newer_rows(database, part))
        database.run(_MERGE)
        database.move()
        database.check(in_turns(queries, 2, 3))
    database.close()
