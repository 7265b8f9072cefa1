"""Queries that read one table under several names, while somebody else writes it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
DIFFERING = "a JOIN {} AS b ON a.id = b.id WHERE a.n <> b.n"


@pytest.fixture
def table(tmp_path: Path, ctx: datafusion.SessionContext) -> Iterator[mw.Table]:
    """`a`, `b`, and `c` by a handle of its own; `lake` has it as `public.t`."""
    with mw.create_table(str(tmp_path / "t.lance"), SCHEMA, primary_key="id") as table:
        mw.register(ctx, "a", table)
        mw.register(ctx, "b", table)
        mw.register(ctx, "c", table.uri)
        mw.catalog(ctx, tmp_path, "lake")
        mw.sql(ctx, "INSERT INTO a VALUES (1, 0), (2, 0)")
        yield table


@pytest.fixture
def written_between(table: mw.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a state of the table has been taken, all of its rows are written at once."""
    writer = table.writer()

    def then_written(method: str) -> None:
        take = getattr(mw.Table, method)

        def taken(*asked: Any) -> Any:
            found = take(*asked)
            numbers.append(0)
            writer.upsert([{"id": key, "n": len(numbers)} for key in (1, 2)])
            return found

        monkeypatch.setattr(mw.Table, method, taken)

    numbers: list[int] = []
    then_written("planned")
    then_written("snapshot")


@pytest.mark.usefixtures("written_between")
@pytest.mark.parametrize("other", ["a", "b", "c", "lake.public.t", "(SELECT * FROM b)"])
def test_a_query_reads_one_state_under_all_names(
    ctx: datafusion.SessionContext, other: str
) -> None:
    found = DIFFERING.format(other)
    assert mw.sql(ctx, f"SELECT a.n, b.n AS m FROM {found}").to_pylist() == []
    assert (
        mw.sql(ctx, f"SELECT * FROM {other} AS b, a WHERE a.id = b.id AND a.n > b.n").count() == 0
    )
    summed = f"SELECT (SELECT sum(n) FROM a) - (SELECT sum(n) FROM {other}) AS n"
    assert mw.sql(ctx, summed).to_pylist() == [{"n": 0}]


@pytest.mark.usefixtures("written_between")
@pytest.mark.parametrize("other", ["a", "b", "c", "lake.public.t"])
def test_all_queries_of_a_statement_do(
    ctx: datafusion.SessionContext, tmp_path: Path, other: str
) -> None:
    with mw.create_table(str(tmp_path / "u"), SCHEMA, primary_key="id") as target:
        mw.register(ctx, "u", target)
        mw.sql(ctx, f"INSERT INTO u SELECT a.id, a.n - b.n FROM {other} AS b JOIN a ON a.id = b.id")
        assert target.to_arrow()["n"].to_pylist() == [0, 0]
        matched = f"MERGE INTO u USING {other} AS s ON u.id = s.id WHEN MATCHED THEN UPDATE SET "
        mw.sql(ctx, f"{matched} n = s.n - (SELECT max(n) FROM a)")
        assert target.to_arrow()["n"].to_pylist() == [0, 0]


@pytest.mark.parametrize("weak", ["eventual", "manifest"])
def test_it_is_the_one_of_the_strongest_name(
    table: mw.Table, ctx: datafusion.SessionContext, weak: str
) -> None:
    table.flush()
    mw.register(ctx, "b", table, weak)
    mw.sql(ctx, "INSERT INTO a VALUES (3, 0)")
    assert mw.sql(ctx, "SELECT * FROM b").count() < 3
    for first, second in (("a", "b"), ("b", "a")):
        both = f"SELECT x.id, y.n FROM {first} AS x FULL JOIN {second} AS y ON x.id = y.id"
        found = mw.sql(ctx, f"{both} ORDER BY 1").to_pylist()
        assert found == [{"id": key, "n": 0} for key in (1, 2, 3)]


def test_names_of_the_past_and_of_other_columns_keep_what_they_show(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    table.flush()
    table.merge()
    mw.register(ctx, "past", table.as_of(table.snapshot_regions()))
    mw.sql(ctx, "UPDATE a SET n = 5")
    query = "SELECT a.n, past.n AS then FROM {} WHERE a.id = past.id AND a.id = 1"
    for tables in ("a, past", "past, a", "a, b VERSION AS OF {} AS past"):
        text = query.format(tables.format(table.version))
        assert mw.sql(ctx, text).to_pylist() == [{"n": 5, "then": 0}]
    mw.sql(ctx, "ALTER TABLE b ADD COLUMN m INT")
    joined = "SELECT a.*, b.* FROM a JOIN b ON a.id = b.id LIMIT 1"
    assert mw.sql(ctx, joined).schema().names == ["id", "n", "id", "n", "m"]
    mw.register(ctx, "a", table)
    assert mw.sql(ctx, joined).schema().names == ["id", "n", "m"] * 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.*, b.n FROM a JOIN b ON a.id = b.id",
        "SELECT b.*, a.n FROM a JOIN b ON a.id = b.id",
        "SELECT a.*, x.n FROM a JOIN a AS x ON a.id = x.id",
        "SELECT x.*, a.n FROM a x JOIN a ON a.id = x.id",
        "SELECT public.a.id, a.n, b.n FROM public.a, b WHERE b.id = datafusion.public.a.id",
        "SELECT a.*, (SELECT max(a.n) FROM public.a) FROM a",
        "WITH a AS (SELECT * FROM a) SELECT a.*, b.n FROM a JOIN b ON a.id = b.id",
        "SELECT u.*, b.n FROM a AS u JOIN b USING (id)",
        "SELECT then.*, a.n FROM a JOIN a VERSION AS OF {} AS then ON a.id = then.id",
        "SELECT b.*, a.n FROM b JOIN a VERSION AS OF {} ON a.id = b.id",
        "FROM a JOIN b ON a.id = b.id SELECT a.*, b.n",
    ],
)
def test_columns_go_by_the_names_of_the_query(
    table: mw.Table, ctx: datafusion.SessionContext, query: str
) -> None:
    """In queries, and in statements that read them."""
    table.flush()
    table.merge()
    query = query.format(table.snapshot_regions())
    found = mw.sql(ctx, f"{query} ORDER BY 1").to_arrow_table()
    columns = [one.to_pylist() for one in found.columns]
    assert list(zip(*columns, strict=True)) == [(1, 0, 0), (2, 0, 0)]
    mw.sql(ctx, f"UPDATE b SET n = s.n + 1 FROM ({query}) AS s (id, n, m) WHERE b.id = s.id")
    assert table.to_arrow()["n"].to_pylist() == [1, 1]
