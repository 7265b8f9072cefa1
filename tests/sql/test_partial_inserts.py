"""Rows that lack columns of the table: refused before anything is written, or null where said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.model.writing import upsert_rows
from tests.sql.test_mount import EVERYTHING

ROWS = [{"id": 1, "plan": "free", "email": "a@x"}, {"id": 2, "plan": "pro", "email": "b@x"}]


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    schema = pa.schema({"id": pa.int64(), "plan": pa.string(), "email": pa.string()})
    table = mw.create_table(tmp_path / "t", schema, "id")
    upsert_rows(table, ROWS)
    return table


def session(table: Any, **options: Any) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    mw.register(context, "t", table, **options)
    return context


def rows(table: mw.Table) -> list[dict[str, Any]]:
    return sorted(table.scan().read_all().to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t (id, plan) VALUES (1, 'pro')",
        "INSERT INTO t (id, plan) SELECT id, 'pro' FROM t",
        "INSERT INTO t SELECT id, 'pro', NULL FROM t",
        "REPLACE INTO t (plan, id) VALUES ('pro', 1)",
    ],
)
@pytest.mark.parametrize("registered", [True, False])
def test_inserts_say_which_columns_would_be_null_and_write_nothing(
    table: mw.Table, statement: str, registered: bool
) -> None:
    context = session(table)
    if not registered:
        context.deregister_table("t")
        context.register_table("t", table)
    with pytest.raises(mw.InvalidCallError, match=r"\['email'\] to NULL"), mw.memwal_errors():
        context.sql(statement).collect()
    plan = context.sql(f"EXPLAIN {statement}").to_pylist()[-1]["plan"]
    assert "['email'] to NULL" in plan
    assert rows(table) == ROWS
    nulls = session(table, missing="null")
    nulls.sql(statement).collect()
    assert rows(table)[0] == {"id": 1, "plan": "pro", "email": None}


@pytest.mark.parametrize("volatility", ["volatile", "stable", "immutable"])
def test_functions_are_not_called_to_plan_an_insert(table: mw.Table, volatility: str) -> None:
    """Other than by DataFusion itself, which computes immutable ones of literals."""
    calls: list[int] = []

    def one(*_: Any) -> pa.Array:
        calls.append(1)
        return pa.array(["x"], pa.string())

    context = session(table)
    context.register_udf(datafusion.udf(one, [], pa.string(), volatility, "none"))
    context.register_udf(datafusion.udf(one, [pa.string()], pa.string(), volatility, "same"))
    query = "SELECT id, none(), same(NULL) FROM t WHERE id = 1"
    context.sql(f"EXPLAIN {query}").collect()
    by_datafusion = len(calls)
    calls.clear()
    context.sql(f"EXPLAIN INSERT INTO t {query}").collect()
    assert len(calls) == by_datafusion


TYPES = [
    *(values.type for values in EVERYTHING.values()),
    *(pa.bool8(), pa.json_(), pa.uuid(), pa.fixed_shape_tensor(pa.float32(), [2])),
]


@each("kind", TYPES)
def test_columns_of_every_type_are_seen_to_become_null(tmp_path: Path, kind: pa.DataType) -> None:
    schema = pa.schema({"id": pa.int64(), "plan": kind})
    table = mw.create_table(tmp_path / "t", schema, "id")
    upsert_rows(table, pa.table({"id": [1], "plan": pa.nulls(1, kind)}, schema=table.schema))
    context = session(table)
    for query in ("(id) SELECT id FROM t", "(id) VALUES (1)", "SELECT id, NULL FROM t"):
        with pytest.raises(mw.InvalidCallError, match=r"\['plan'\] to NULL"), mw.memwal_errors():
            context.sql(f"INSERT INTO t {query}").collect()
    context.sql("INSERT INTO t SELECT * FROM t").collect()


def test_what_becomes_of_missing_columns_is_one_of_few_words(table: mw.Table) -> None:
    """An INSERT can't keep them: DataFusion fills them in before the table sees the rows."""
    with pytest.raises(mw.InvalidCallError, match="missing='keep'"):
        session(table, missing="keep")
    with table.writer() as writer, pytest.raises(mw.InvalidCallError, match="missing='none'"):
        writer.upsert(ROWS, missing="none")
