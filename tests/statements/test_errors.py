"""Errors of statements are of this package, and name nothing of its inside."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memwal_sql as mw
from memwal_sql.statements.queries.places import Edit, edited, place_before
from tests.statements.test_refusals import INSIDE

SCHEMA = pa.schema({"id": pa.int64(), "n": pa.int64(), "v": pa.list_(pa.float32(), 2)})
# `?` is a value; one of them is at fault.
STATEMENTS = """
SELECT id, ? FROM t WHERE n = ?
SELECT a.id FROM t a JOIN t b ON a.id = ? WHERE b.n = ?
SELECT id, ? FROM t VERSION AS OF 'then' AS old WHERE n = ?
SELECT ? FROM vector_search('t', 'v', [1.0, 2.0], k => 2) WHERE id = ?
SELECT ?, v <-> [1, 2] FROM t WHERE n = ? AND v <-> '[1,2]' < 1 ORDER BY ?
SELECT n FROM t a WHERE id IN (SELECT id FROM full_text_search('t', 'c', 'x', k => 3) WHERE id = ?)
WITH w AS (SELECT ? AS id) SELECT * FROM w JOIN t USING (id) WHERE n = ?
WITH w AS (SELECT ? AS id) DELETE FROM t WHERE id IN (SELECT id FROM w) AND n = ? RETURNING ?
DELETE FROM t AS a USING s WHERE a.id = s.id AND s.n = ?
UPDATE t SET n = ? WHERE id = ? RETURNING id, ?
UPDATE t SET id = id + ? WHERE id = ?
UPDATE t AS a SET n = ? FROM s WHERE a.id = ?
UPDATE t SET n = v <-> [1, 2], v = ? WHERE n = ?
INSERT INTO t (id, n) SELECT id, ? FROM s WHERE n = ? RETURNING ?
INSERT INTO t (id, n) VALUES (1, ?), (?, 3)
INSERT INTO t (id, n) VALUES (1, 2) ON CONFLICT DO UPDATE SET n = ? WHERE t.n = ?
INSERT INTO t (id, n) VALUES (1, 2) ON CONFLICT DO UPDATE SET n = excluded.n, v = ? WHERE t.n = ?
INSERT INTO t BY NAME SELECT 7 AS id, ? AS n
INSERT OVERWRITE t (id, n) SELECT id, ? FROM t
REPLACE INTO t (id, n) SELECT id, ? FROM s
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND s.n = ? THEN UPDATE SET n = ? RETURNING ?
MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED AND s.n = ? THEN INSERT (id) VALUES (?)
MERGE INTO t USING (SELECT id, ? AS n FROM s) AS u ON t.id = u.id + ? WHEN MATCHED THEN DELETE
MERGE INTO t USING s ON t.n = ? WHEN NOT MATCHED BY SOURCE AND n = ? THEN UPDATE SET n = ?
EXPLAIN SELECT ? FROM t AS a, t AS b
EXPLAIN UPDATE t SET n = ? WHERE n = ?
COPY (SELECT ? AS n FROM t, t AS u) TO 'nowhere.parquet'
CREATE TABLE made (PRIMARY KEY (id)) LOCATION 'made' AS SELECT ? AS id FROM t
CREATE VIEW w AS SELECT ? AS id FROM t
CALL memwal.checkpoint('t', ?)
CREATE INDEX ON t USING fts (c) WITH (stem = ?)
SELECT id FROM t FOR SYSTEM_TIME AS OF (?)
""".strip().splitlines()
# Values at fault.
FAULTS = ("nope_1", "nofun(1)", "(SELECT max(z) FROM notable)", "(1 + true)", "(1 + * 2)")


@pytest.fixture(scope="module")
def ctx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[datafusion.SessionContext]:
    folder: Path = tmp_path_factory.mktemp("errors")
    schema = SCHEMA.append(pa.field("c", pa.string()))
    table = mw.create_table(folder / "t", schema, primary_key="id")
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    ctx.from_pydict({"id": [1, 2], "n": [3, 4]}, name="s")
    mw.sql(ctx, "INSERT INTO t VALUES (1, 10, [0, 0], 'x'), (2, 20, [0, 1], 'y')")
    table.checkpoint("then")
    yield ctx
    table.close()


def test_a_fault_anywhere_is_an_error_of_ours(ctx: datafusion.SessionContext) -> None:
    for number, statement in enumerate(STATEMENTS):
        parts = statement.split("?")
        for wrong in range(len(parts) - 1):
            fault = FAULTS[(number + wrong) % len(FAULTS)]
            if statement.startswith("EXPLAIN UPDATE") and "true" in fault:
                continue  # DataFusion has the error as a row of the plan
            values = [fault if place == wrong else "1" for place in range(len(parts) - 1)]
            text = "".join(map("".join, zip(parts, [*values, ""], strict=True)))
            with pytest.raises(mw.InvalidCallError) as caught:
                mw.sql(ctx, text).collect()
            assert caught.type in (mw.InvalidCallError, mw.UnsupportedError), text
            assert not INSIDE.search(str(caught.value)), text


async def first_of(frame: datafusion.DataFrame) -> object:
    return await anext(aiter(frame))


def test_errors_of_a_query_are_ours_however_it_is_collected(ctx: datafusion.SessionContext) -> None:
    frame = mw.sql(ctx, "SELECT id, n / (n - n) AS x FROM t")
    other = mw.sql(ctx, "SELECT id AS key FROM s")
    for collect in (
        frame.collect,
        frame.to_arrow_table,
        frame.limit(3).filter(datafusion.col("x") > 0).to_pylist,
        frame.join(other, left_on="id", right_on="key").collect,
        lambda: list(frame),
        lambda: repr(frame),
        frame._repr_html_,
        lambda: list(frame.execute_stream()),
        lambda: [list(stream) for stream in frame.execute_stream_partitioned()],
        frame.collect_partitioned,
        lambda: asyncio.run(first_of(frame)),
        frame["x"].to_pydict,
    ):
        with pytest.raises(mw.InvalidCallError, match=r"^Divide by zero error$"):
            collect()
    with pytest.raises(mw.InvalidCallError, match="No field named nope"):
        frame.select("nope")
    with pytest.raises(TypeError):
        frame.limit("x")  # type: ignore[arg-type]
    with pytest.raises(mw.InvalidCallError, match="the query has 1 dimensions"):
        mw.sql(ctx, "SELECT * FROM vector_search('t', 'v', [1.0])")
    assert frame.select("id").sort("id").to_pydict() == {"id": [1, 2]}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t WHERE n = 1",
        "UPDATE t SET n = 1",
        "SELECT a.n FROM t AS a JOIN t b USING (id)",
    ],
)
@pytest.mark.parametrize("how", ["", "VERBOSE", "FORMAT tree", "FORMAT graphviz"])
def test_plans_name_tables_as_the_statement_does(
    ctx: datafusion.SessionContext, statement: str, how: str
) -> None:
    plans = str(mw.sql(ctx, f"EXPLAIN {how} {statement}").to_pydict()["plan"])
    assert how == "FORMAT tree" or "TableScan: t" in plans or '"t"' in plans
    assert not INSIDE.search(plans)


@pytest.mark.parametrize(
    "statement",
    ["SELECT 1", "DELETE FROM t WHERE id = $other", "SELECT '$more' AS a"],
)
def test_a_parameter_that_the_statement_has_not_is_refused(
    ctx: datafusion.SessionContext, statement: str
) -> None:
    known = {"other": 9} if "$other" in statement else {}
    with pytest.raises(mw.InvalidCallError, match=r"\$more, \$most is given.*written \$name"):
        mw.sql(ctx, statement, more=1, most=2, **known)
    assert mw.sql(ctx, statement, **known).to_pylist()


@pytest.mark.parametrize("value", [2**70, object(), [1, "a"]])
def test_a_parameter_that_has_no_value_in_arrow_is_refused(
    ctx: datafusion.SessionContext, value: object
) -> None:
    with pytest.raises(mw.InvalidCallError, match=r"^\$x can't be .*CAST\(\$x AS"):
        mw.sql(ctx, "SELECT $x", x=value)


@given(st.text("ab\n", min_size=1), st.data())
def test_places_after_edits_lead_back_to_those_before(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), unique=True, max_size=6))
    cuts = sorted(cuts)[: len(cuts) // 2 * 2]
    edits = [
        Edit(start, end, data.draw(st.text("XY")))
        for start, end in zip(cuts[::2], cuts[1::2], strict=True)
    ]
    after = edited(text, edits)
    for place, character in enumerate(after):
        if character in "XY":
            assert any(place_before(place, edits) == one.start for one in edits)
        else:
            assert text[place_before(place, edits)] == character
    assert place_before(len(after), edits) == len(text)
