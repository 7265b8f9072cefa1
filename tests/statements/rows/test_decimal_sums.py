"""Sums of decimals are right, or refused: DataFusion wraps around beyond their digits."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw

D = Decimal
MOST = 10**38 - 1
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("d", pa.decimal128(38, 0)),
        ("e", pa.decimal128(38, 18)),
        ("n", pa.int64()),
    ]
)
ROWS = [
    {"id": 1, "d": D(MOST), "e": D("1.5"), "n": 1},
    {"id": 2, "d": D(MOST), "e": D("2.25"), "n": 2},
    {"id": 3, "d": D(MOST), "e": D("-0.75"), "n": 3},
    {"id": 4, "d": D(-MOST), "e": None, "n": 4},
    {"id": 5, "d": D(1 - MOST), "e": D(4), "n": 5},
]
SMALL = pa.table(
    {
        "a": pa.array([D("9999999.99")] * 3, pa.decimal32(9, 2)),
        "b": pa.array([D("9" * 18)] * 3, pa.decimal64(18, 0)),
        "e": pa.array([D("0.5")] * 3, pa.decimal128(10, 2)),
    }
)
RIGHT = {
    "SELECT sum(d) FROM t WHERE id > 1": 1,
    "SELECT sum(d) AS x, sum(n) AS y FROM t WHERE id > 2": 1 - MOST,
    "SELECT sum(t.e) + 1 FROM t": 8,
    "SELECT SUM(DISTINCT d) FROM t": 1 - MOST,
    'SELECT "sum"(ALL d) FILTER (WHERE id > 3 AND id < 5) + 1 FROM t': 1 - MOST,
    "SELECT sum(d) OVER (ORDER BY id ROWS 1 PRECEDING) FROM t WHERE id IN (1, 4)": 0,
    "SELECT sum(d + 0) OVER w FROM t WHERE id = 1 WINDOW w AS (ORDER BY id)": MOST,
    "SELECT sum(sum(e)) OVER () FROM t": 7,
    "SELECT avg(sum(e)) OVER () FROM t": 7,
    "SELECT DISTINCT sum(e) FROM t ORDER BY sum(e)": 7,
    "SELECT sum(e) FROM (SELECT n, sum(e) AS e FROM t GROUP BY n HAVING sum(e) > 2) AS s": D(
        "6.25"
    ),
    "WITH s AS (SELECT sum(e) AS a, sum(n) AS b FROM t) SELECT a + b FROM s": 22,
    "SELECT avg(e) FROM t": D("1.75"),
    "SELECT avg(e) - sum(e) FROM t": D("-5.25"),
    "SELECT mean(d) AS x FROM t WHERE id > 1": D("0.25"),
    "SELECT sum(n) FROM t WHERE d = (SELECT sum(d) FROM t WHERE id = 1)": 6,
    "SELECT sum(t.e) + (SELECT sum(small.e) FROM small) FROM t": D("8.5"),
    "SELECT sum(a) FROM small": D("29999999.97"),
    "SELECT avg(a) FROM small": D("9999999.99"),
    "SELECT sum(b) FROM small": 3 * (10**18 - 1),
    "SELECT sum(e) FROM small": D("1.5"),
    "SELECT sum(CAST(d AS DECIMAL(66, 0))) FROM t WHERE id < 3": 2 * MOST,
}
# Changes and definitions whose sums have too many digits, and queries.
REFUSED = """
SELECT sum(d) FROM t
SELECT sum(d) FROM t WHERE id < 3
SELECT n, sum(d) FROM t WHERE id < 4 GROUP BY GROUPING SETS ((n), ())
SELECT sum(d) OVER (ORDER BY id) FROM t
SELECT sum(sum(d)) OVER () FROM t WHERE id < 3 GROUP BY n
SELECT avg(sum(d)) OVER () FROM t WHERE id < 3
SELECT sum(e) * 0 + sum(d) FROM t WHERE id < 3
UPDATE t SET d = (SELECT sum(d) FROM t WHERE id < 3) WHERE id = 1
INSERT INTO t (id, d) SELECT 9 AS id, sum(d) AS d FROM t WHERE id < 3
INSERT INTO t (id) VALUES (1) ON CONFLICT DO UPDATE SET d = (SELECT sum(d) FROM t WHERE id < 3)
DELETE FROM t WHERE d > (SELECT sum(d) FROM t WHERE id < 3)
DELETE FROM t USING (SELECT sum(d) AS d FROM t WHERE id < 3) AS s WHERE t.d > s.d
MERGE INTO t USING (SELECT 1 AS id, sum(d) AS d FROM t) AS s ON t.id = s.id WHEN MATCHED THEN DELETE
CREATE TABLE made AS SELECT sum(d) AS x FROM t WHERE id < 3
CREATE TABLE made (PRIMARY KEY (id)) LOCATION '{folder}' AS SELECT 1 AS id, sum(d) AS x FROM t
COPY (SELECT sum(d) AS x FROM t) TO '{folder}/x.parquet'
""".strip().splitlines()


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[datafusion.SessionContext]:
    ctx = datafusion.SessionContext()
    with mw.create_table(tmp_path / "t", SCHEMA, primary_key="id") as table:
        with table.writer() as writer:
            writer.upsert(ROWS)
        mw.register(ctx, "t", table)
        ctx.from_arrow(SMALL, name="small")
        yield ctx


def test_sums_are_exact_under_their_names(ctx: datafusion.SessionContext) -> None:
    for query, expected in RIGHT.items():
        (row,) = mw.sql(ctx, query).to_pylist()[-1:]
        assert next(iter(row.values())) == expected, query
        assert list(row) == ctx.sql(query).schema().names, query


def test_no_sum_is_shown_or_stored_that_has_too_many_digits(
    ctx: datafusion.SessionContext, tmp_path: Path
) -> None:
    for text in REFUSED:
        with pytest.raises(mw.InvalidCallError, match=r"38 digits.*DECIMAL\(66"):
            mw.sql(ctx, text.format(folder=tmp_path / "made")).collect()
        assert mw.sql(ctx, "SELECT * FROM t ORDER BY id").to_pylist() == ROWS, text


def test_views_and_prepared_queries_have_the_sums_of_their_queries(
    ctx: datafusion.SessionContext,
) -> None:
    for start, query in (("CREATE VIEW q AS", "SELECT * FROM q"), ("PREPARE q AS", "EXECUTE q")):
        mw.sql(ctx, f"{start} SELECT sum(d) AS x FROM t WHERE id < 3")
        with pytest.raises(mw.InvalidCallError, match="38 digits"):
            mw.sql(ctx, query).collect()


def test_a_sum_whose_type_is_not_clear_is_refused(ctx: datafusion.SessionContext) -> None:
    for text in (
        "SELECT (SELECT sum(e) FROM t) + (SELECT sum(e) FROM small) AS x",
        'SELECT "sum(t.e)" FROM (SELECT sum(e) FROM t)',
        "SELECT * FROM t |> AGGREGATE sum(e) AS x",
    ):
        with pytest.raises(mw.UnsupportedError, match=r"name its columns .* with AS, or"):
            mw.sql(ctx, text)
