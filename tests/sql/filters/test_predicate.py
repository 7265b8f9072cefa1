"""Predicates: sources in memory evaluate exactly what DataFusion would."""

from __future__ import annotations

import datetime

import datafusion
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_native import MountedTable, Predicate
from tests.sql.fakes import FakeProvider

TABLE = pa.table(
    {
        "id": pa.array([1, 2, None, 4], pa.int32()),
        "Odd Name": pa.array(["a", None, "c%", ""]),
        "x": pa.array([0.5, float("nan"), None, -0.0]),
        "at": pa.array([datetime.datetime(2024, 1, 1), None, None, None], pa.timestamp("us")),
    }
)


class Keeper(FakeProvider):
    """Keeps the predicates of the last scan."""

    predicates: list[Predicate]

    def scan(self, projection: list[int] | None, predicates: list[Predicate], limit: int | None):  # type: ignore[no-untyped-def]
        self.predicates = predicates
        return super().scan(projection, predicates, limit)


def predicates(
    condition: str, table: pa.Table = TABLE, *, answer: str = "exact"
) -> list[Predicate]:
    provider = Keeper(table, answer=answer)
    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(provider))
    context.sql(f"SELECT * FROM t WHERE {condition}").collect()
    return provider.predicates


def predicate(condition: str) -> Predicate:
    (found,) = predicates(condition)
    return found


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id > 1", [False, True, None, True]),
        ("id IS DISTINCT FROM 1", [False, True, True, True]),
        ("\"Odd Name\" LIKE '%c%'", [False, None, True, False]),
        ("x < 0.5", [False, False, None, True]),
        ("id % 2 = 0 OR x > 0.1", [True, True, None, True]),
        ("at >= TIMESTAMP '2024-01-01'", [True, None, None, None]),
        ("abs(id) = 4", [False, False, None, True]),
    ],
)
def test_a_predicate_evaluates_as_sql_does(condition: str, expected: list[bool | None]) -> None:
    found = predicate(condition).evaluate(TABLE.to_batches()[0])
    assert isinstance(found, pa.BooleanArray)
    assert found.to_pylist() == expected


def test_columns_are_found_by_name_whatever_else_the_batch_has() -> None:
    found = predicate("id > 1 OR x > 0.1")
    assert found.columns == ["id", "x"]
    batch = TABLE.to_batches()[0]
    expected = found.evaluate(batch)
    shuffled = batch.select(["x", "at", "id"]).append_column("_rowaddr", pa.array([1, 2, 3, 4]))
    assert found.evaluate(shuffled).equals(expected)
    assert found.evaluate(batch.slice(2)).equals(expected[2:])
    assert found.evaluate(batch).equals(expected)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("id", "id"),
        ("_under_1", "_under_1"),
        ("select", '"select"'),
        ("Upper", '"Upper"'),
        ("1st", '"1st"'),
        ("two words", '"two words"'),
        ("größe", '"größe"'),
        ('a"b', '"a""b"'),
        ("", '""'),
    ],
)
def test_the_text_of_a_predicate_quotes_names_that_need_it(name: str, text: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    (found,) = predicates(f"{quoted} > 1", pa.table({name: [1, 2]}))
    assert found.sql == f"({text} > 1)"


@pytest.mark.parametrize("count", [2, 1000])
def test_long_chains_are_shown_and_evaluated(count: int) -> None:
    """They come as trees as deep as they are long, which would overrun the stack."""
    text = " OR ".join(f"id % {n + 2} = x" for n in range(count))
    found = predicate(text)
    assert found.evaluate(TABLE.to_batches()[0]).to_pylist() == [False, False, None, True]
    assert str(found.sql).count(" OR ") == count - 1


def test_what_nests_too_deep_is_an_error_where_it_would_be_evaluated() -> None:
    (found,) = predicates("id" + " + id" * 200 + " > 1", answer="inexact")
    assert found.columns == ["id"] and found.sql is None
    with pytest.raises(RuntimeError, match="nested too deeply"):
        found.evaluate(TABLE.to_batches()[0])


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="id"):
        predicate("id > 1").evaluate(TABLE.select(["x"]).to_batches()[0])


def test_the_text_names_columns_without_the_table() -> None:
    assert predicate("t.id > 1").sql in ("(id > 1)", "id > 1")
    assert '"Odd Name"' in str(predicate("\"Odd Name\" = 'x'").sql)


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(st.none() | st.integers(-5, 5), min_size=1, max_size=30),
    condition=st.sampled_from(
        ["v > 2", "v IN (1, 2, 3, 4, 5)", "NOT (v = 1)", "v BETWEEN -1 AND 3"]
    ),
)
def test_a_filter_keeps_what_datafusion_keeps(values: list[int | None], condition: str) -> None:
    table = pa.table({"v": pa.array(values, pa.int64())})
    context = datafusion.SessionContext()
    context.register_record_batches("t", [table.to_batches()])
    expected = context.sql(f"SELECT v FROM t WHERE {condition}").to_arrow_table()["v"].to_pylist()
    batch = table.to_batches()[0]
    for found in predicates(condition, table):
        batch = batch.filter(found.evaluate(batch))
    assert batch["v"].to_pylist() == expected
