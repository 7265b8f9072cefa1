"""What statements over tables of many columns plan and look at, which grows with the columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.statements.changes import reading
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.target import Target
from memwal_sql.statements.changes.update import LookedUp
from memwal_sql.statements.queries.parsed import Text, parsed
from memwal_sql.statements.queries.planning import parser_of
from memwal_sql.write.conditional.groups import MOST_TOGETHER, groups
from tests.each import each

NAMES = [f"c{i}" for i in range(2 * MOST_TOGETHER + 50)]
TIMES = ["c0", NAMES[-1]]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        *((name, pa.timestamp("us") if name in TIMES else pa.int64()) for name in NAMES),
    ]
)
NUMBERS = NAMES[1:-1]


class Counted:
    """Rows or columns that count how often each of their attributes is read."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.reads: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.reads[name] += 1
        return getattr(self.inner, name)

    def __getitem__(self, name: str) -> Any:
        return self.inner[name]

    def __iter__(self) -> Any:
        return iter(self.inner)


def rows(keys: Sequence[int], value: int) -> pa.Table:
    made = [{"id": key, **dict.fromkeys(NUMBERS, value)} for key in keys]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert(rows(range(4), 10))
    ctx.register_record_batches("s", [rows([1, 2, 3, 7], 5).to_batches()])
    return mw.register(ctx, "t", table)


@each(
    "when, values, expected",
    [
        ("MATCHED", "t.{0} + s.{0}", {1: 15, 2: 15, 3: 15}),
        ("MATCHED AND s.c1 < t.c2 AND s.id > 1", "t.{0} + s.{0}", {2: 15, 3: 15}),
        ("NOT MATCHED BY SOURCE", "t.{0} * 2", {0: 20}),
        ("NOT MATCHED BY SOURCE AND t.id = 0", "{0} * 2", {0: 20}),
        ("MATCHED", "s.{0}", {1: 5, 2: 5, 3: 5}),
        ("MATCHED AND s.c7 = 5 AND t.id <> 2", "s.{0}", {1: 5, 3: 5}),
        ("MATCHED", '"s"."C0".{0}', None),
    ],
)
def test_merge_plans_few_columns_at_once(
    table: mw.Table,
    ctx: datafusion.SessionContext,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    values: str,
    expected: dict[int, int] | None,
) -> None:
    planned: list[int] = []
    in_memory = reading.in_memory

    def counted(ctx: datafusion.SessionContext, tables: dict[str, pa.Table]) -> Any:
        planned.extend(rows.num_columns for rows in tables.values())
        return in_memory(ctx, tables)

    monkeypatch.setattr(reading, "in_memory", counted)
    sets = [f"{name} = {values.format(name)}" for name in NUMBERS]
    sets += [f"{name} = now()" for name in TIMES]
    with table.writer() as writer:
        writer.upsert(rows(range(4), 10))
    before = {row["id"]: row for row in table.to_arrow().to_pylist()}
    statement = f"MERGE INTO t USING s ON t.id = s.id WHEN {when} THEN UPDATE SET {', '.join(sets)}"
    if expected is None:
        with pytest.raises(mw.InvalidCallError, match="C0"):
            mw.sql(ctx, statement)
        return
    assert mw.sql(ctx, statement).to_pylist()[0]["updated"] == len(expected)
    wide = [columns for columns in planned if columns > MOST_TOGETHER + 10]
    assert bool(wide) == ("BY SOURCE" in when)  # the join by a condition
    for row in table.to_arrow().to_pylist():
        if row["id"] not in expected:
            assert row == before[row["id"]]
            continue
        assert {row[name] for name in NUMBERS} == {expected[row["id"]]}
        assert row[TIMES[0]] == row[TIMES[1]] is not None


@each(
    "text, most, expected",
    [
        ("c1 = c2 + 1 WHERE id = 2", 9, {2: 11}),
        ("c1 = t.c2 + s.c9 FROM s WHERE s.id = t.id", 9, {1: 15, 2: 15, 3: 15}),
        ("c1 = c2 + (SELECT max(c3) FROM t)", 9, {0: 20, 1: 20, 2: 20, 3: 20}),
        ("c1 = 1.0 WHERE id = 77", 9, {}),
        (
            "c1 = s.c9 FROM (SELECT * FROM s UNION ALL SELECT * FROM s) AS s WHERE s.id = t.id",
            9,
            None,
        ),
        ("c1 = c2 + 1 WHERE id > 0", 2, {1: 11, 2: 11, 3: 11}),
    ],
)
def test_update_of_few_rows_plans_the_columns_that_it_sets(
    table: mw.Table,
    ctx: datafusion.SessionContext,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    most: int,
    expected: dict[int, int] | None,
) -> None:
    planned: list[int] = []
    query_frame = reading.query_frame

    def counted(*args: Any) -> datafusion.DataFrame:
        frame = query_frame(*args)
        planned.append(len(frame.schema()))
        return frame

    with table.writer() as writer:
        writer.upsert(rows(range(4), 10))
    before = {row["id"]: row for row in table.to_arrow().to_pylist()}
    with LookedUp.set(most_rows=most), monkeypatch.context() as patched:
        patched.setattr(reading, "query_frame", counted)
        if expected is None:
            with pytest.raises(mw.InvalidCallError, match="changed more than once"):
                mw.sql(ctx, f"UPDATE t SET {text}")
            return
        result = mw.sql(ctx, f"UPDATE t SET {text} RETURNING id, c1").to_pylist()
    assert {row["id"]: row["c1"] for row in result} == expected
    assert max(planned) == (len(SCHEMA) if len(expected) > most else 3)
    after = {key: {**row, "c1": expected.get(key, row["c1"])} for key, row in before.items()}
    assert {row["id"]: row for row in table.to_arrow().to_pylist()} == after


def test_expressions_of_a_writer_are_planned_few_at_once(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[int] = []
    from_arrow = datafusion.SessionContext.from_arrow

    def counted(ctx: datafusion.SessionContext, rows: pa.Table) -> datafusion.DataFrame:
        planned.extend(max(1, field.type.num_fields) for field in rows.schema)
        return from_arrow(ctx, rows)

    monkeypatch.setattr(datafusion.SessionContext, "from_arrow", counted)
    with table.writer() as writer:
        sums = {name: f"t.{name} + s.{name}" for name in NUMBERS}
        writer.upsert(rows([1, 2, 8], 3), when="t.id > s.c3 - 2", set=sums)
        writer.update({name: f"{name} + 1" for name in NUMBERS}, where="id < 1")
    assert max(planned) <= MOST_TOGETHER + 10
    found = {row["id"]: {row[name] for name in NUMBERS} for row in table.to_arrow().to_pylist()}
    assert found == {0: {11}, 1: {10}, 2: {13}, 3: {10}, 8: {3}}


def test_names_are_listed_no_more_often_for_more_columns(
    table: mw.Table, ctx: datafusion.SessionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = []
    read = Reading.rows

    def counted(*args: Any) -> Counted:
        sources.append(Counted(read(*args)))
        return sources[-1]

    monkeypatch.setattr(Reading, "rows", counted)
    assigned = ", ".join(f"{name} = s.{name}" for name in NAMES)
    text = f"MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET {assigned}"
    assert mw.sql(ctx, text).to_pylist()[0]["updated"] == 3
    assert max(source.reads["column_names"] for source in sources) <= 5

    columns = Counted(SCHEMA)
    changed, schema = cast(Any, None), cast(pa.Schema, columns)
    target = Target(("", "", "t"), cast(Any, table), schema, changed, "t", ("t",), None, "")
    statement = parsed(parser_of(ctx), Text(text, text))
    references = [assignment.column for assignment in statement.sql.tree.whens[0].sets]
    assert target.columns_of(statement, references) == NAMES
    assert columns.reads["names"] == 0


def test_expressions_that_show_the_time_are_in_one_group() -> None:
    texts = {str(n): "now()" if n % 2 else f"x{n}" for n in range(4 * MOST_TOGETHER)}
    found = groups(texts)
    assert [len(group) for group in found] == [2 * MOST_TOGETHER, MOST_TOGETHER, MOST_TOGETHER]
    assert set(found[0].values()) == {"now()"}
    assert {name: text for group in found for name, text in group.items()} == texts
    assert groups({}) == [{}]
