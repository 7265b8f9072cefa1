"""Errors of statements are of this package, and name nothing of its inside."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memwal_sql as mw
from memwal_sql.statements.queries.places import Edit, before, edited
from tests.each import each

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
INSIDE = re.compile(r"memwal[$ ]|Line:|Column:|DataFusion error|ParserError")


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


def test_places_are_those_of_the_user_s_text(ctx: datafusion.SessionContext) -> None:
    """Where the parser names one, and a text is read as it is written."""
    for text, fault in (
        ("SELECT id, (1 + * 2) FROM t", "* 2"),
        ("\n  SELECT /* é */ id\n FROM t WHERE id = (1 + ) ;", ")"),
        ("SELECT id FROM t VERSION AS OF 'then' AS old WHERE n = (1 + )", ")"),
        ("WITH w AS (SELECT 1 + * 2 AS id) SELECT * FROM w JOIN t USING (id)", "* 2"),
        ("COPY (SELECT 1 + * 2 AS n FROM t) TO 'nowhere.parquet'", "* 2"),
        ("CREATE VIEW w AS SELECT 1 + * 2 AS id FROM t", "* 2"),
        ("\nDELETE FROM t WHERE", ""),
        ("\n UPDATE t SET zork = 3", "zork"),
        ("UPDATE t SET n = (1 + * 2)", "* 2"),
        ("SELECT v <-> [1, 2], (1 + * 2) FROM t", "* 2"),
    ):
        at = text.rindex(fault) if fault else len(text)
        line = text.count("\n", 0, at) + 1
        column = at - text.rfind("\n", 0, at)
        with pytest.raises(mw.InvalidCallError, match=f", at line {line}, column {column}: "):
            mw.sql(ctx, text)


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


@pytest.mark.parametrize("statement", ["DELETE FROM t WHERE 1 / (n - n) = 0", "SELECT 1 / 0"])
def test_arithmetic_that_fails_is_an_error_of_ours(
    ctx: datafusion.SessionContext, statement: str
) -> None:
    with pytest.raises(mw.InvalidCallError, match="Divide by zero"):
        mw.sql(ctx, statement).collect()


# What users write, and what of the remedy the error says.
MISTAKES = {
    "SELECT id FROM t FOR SYSTEM_TIME AS OF now()": r"expression in parentheses.*column 40: 'now'",
    "SELECT id FROM t VERSION AS OF -1": "expression in parentheses",
    "UPDATE t VERSION AS OF 1 SET n = 2": r"restore\(.*column 10: 'VERSION'",
    "DELETE FROM t FOR VERSION AS OF 1": r"restore\(",
    "INSERT INTO t VERSION AS OF 1 VALUES (1)": r"restore\(",
    "MERGE INTO t VERSION AS OF 1 USING s ON t.id = s.id WHEN MATCHED THEN DELETE": r"restore\(",
    "COPY t FROM 'f.csv'": "found: FROM",
    "CALL merge('t')": r"CALL memwal\.merge\('table', ...\)",
    "SELECT * FROM t WHERE match(n, '1')": "no column of texts",
    "DELETE t WHERE id = 1": "Expected: FROM, found: t, at line 1, column 8: 't'",
    "DELETE FROM t WHERE": "Expected: an expression, .*the end",
    "DELETE FROM t id = 3": "the end of the statement, found: =",
    "UPDATE t SET n = 3 WHERE": "Expected: an expression",
    "UPDATE t SET v.x = 3": "one by one: set all of 'v', at line 1, column 14: 'v'",
    "INSERT INTO t (id, t.v.x) VALUES (1, 2)": "one by one.*column 20: 't'",
    "UPDATE t SET s.n = 3": "'s' is not the table that is written",
    "DELETE FROM t RETURNING count(*)": "an aggregate or window function is not allowed here",
    "INSERT INTO t VALUES (9, 9, [0, 0], '') RETURNING id, max(n) + 1": "an aggregate or",
    "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = sum(s.n)": "an aggregate",
    "INSERT INTO t (id) VALUES (1) ON DUPLICATE KEY UPDATE n = 3": "ON CONFLICT DO UPDATE",
    "UPSERT INTO t VALUES (1)": "found: UPSERT, at line 1, column 1",
    "CREATE UNIQUE INDEX i ON t (n)": "only the primary key is",
    "CREATE TABLE x (id NOPE PRIMARY KEY) LOCATION 'x'": "can't be read: Unsupported SQL type NOPE",
    "ALTER TABLE t ADD COLUMN": "Expected: identifier, .*the end",
    "ALTER TABLE t ADD COLUMN x": "Expected: a data type name",
    'DROP TABLE "t$regions"': "describes the table t",
    'DELETE FROM "t$regions"': r"MemWAL tables only: ctx\.sql",
    "DELETE FROM s WHERE nope = 1": r"MemWAL tables only: ctx\.sql",
    "TRUNCATE s": r"MemWAL tables only$",
    "MERGE INTO s USING t ON t.id = s.id WHEN MATCHED THEN DELETE": "MemWAL tables only",
    'SELECT id FROM t WHERE c = "Oslo"': "single quotes: 'Oslo'",
    "SELECT id FROM t WHERE id = $1": r"\*\*\{'1': ...\}",
    "SELECT id FROM t WHERE id = $x": r"mw\.sql\(ctx, text, x=...\)",
    "SELECT id FROM lake.public.nope": "not found\nmw.register",
    "INSERT INTO nope VALUES (1) RETURNING id": "not found\nmw.register",
    "UPDATE nope SET n = 1 RETURNING n": "not found\nmw.register",
    "MERGE INTO nope USING t ON true WHEN MATCHED THEN DELETE": "not found\nmw.register",
    "ALTER TABLE nope ADD COLUMN a INT": "not found\nmw.register",
    "ALTER TABLE lake.public.nope DROP COLUMN a": "not found",
    "DROP INDEX i ON nope": "not found\nmw.register",
    "DROP INDEX i ON s": "not a MemWAL table.*column 17: 's'",
    "CREATE INDEX ON s (n)": "not a MemWAL table.*column 17: 's'",
    "ALTER TABLE s ADD COLUMN a INT": "not a MemWAL table.*column 13: 's'",
    "CREATE VIEW v AS SELECT * FROM t VERSION AS OF 'then'": r"AS OF is for.*column 34.*as_of\(",
    "CREATE TABLE x AS SELECT * FROM t FOR SYSTEM_TIME AS OF $1": "AS OF is for.*column 35: 'FOR'",
    "INSERT INTO s SELECT id, n FROM t VERSION AS OF 1": "AS OF is for.*column 35: 'VERSION'",
    "CREATE TABLE nope.public.x (id INT PRIMARY KEY) LOCATION 'x'": "no catalog 'nope'.*column 14",
    "CREATE TABLE nope.x (id INT PRIMARY KEY) LOCATION 'x'": "no schema 'nope'.*column 14: 'nope'",
    "CREATE TABLE nope.x (PRIMARY KEY (id)) LOCATION 'x' AS SELECT 1 AS id": "no schema 'nope'",
    "CREATE EXTERNAL TABLE no.pe.x STORED AS MEMWAL LOCATION 'x'": "no catalog 'no'.*column 23",
    "CREATE TABLE a.b.c.d (id INT PRIMARY KEY) LOCATION 'x'": "three parts.*column 14: 'a'",
    "DROP TABLE nope.public.x": "doesn't exist",
    "ALTER TABLE nope.public.x ADD COLUMN a INT": "not found",
    "CREATE TABLE x (id INT PRIMARY KEY, v VECTOR(3)) LOCATION 'x'": r"FLOAT\[3\].*column 39: 'VE",
    "ALTER TABLE t ADD COLUMN w VECTOR(3)": r"FLOAT\[3\].*column 28: 'VECTOR'",
    "SAVEPOINT a": "a statement that fails leaves what the transaction",
    "EXPLAIN FORMAT nope SELECT 1": "indent, tree, pgjson or graphviz, .* at line 1, column 16",
    "EXPLAIN FORMAT": "indent, tree, pgjson or graphviz",
    "EXPLAIN CREATE TABLE x (id INT PRIMARY KEY) LOCATION 'x'": "EXPLAIN shows plans of queries",
    "EXPLAIN DROP TABLE t": "EXPLAIN shows plans of queries",
    "EXPLAIN SET memwal.isolation = 'snapshot'": "EXPLAIN shows plans of queries",
    "EXPLAIN ALTER TABLE t ADD COLUMN x INT": "EXPLAIN shows plans of queries.*column 9: 'ALTER'",
    "EXPLAIN CALL memwal.merge('t')": "EXPLAIN shows plans of queries",
    "CREATE INDEX ON t USING fts (c) WITH (language = 'Nope')": "'Nope'.*expected one of `Arabic`",
    "CREATE INDEX ON t USING fts (c) WITH (stem = 'maybe')": "stem='maybe' must be true or false",
    "CREATE INDEX ON t USING fts (c) WITH (with_position = 1)": "with_position=1 must be true or",
    "CREATE INDEX ON t USING fts (c) WITH (max_token_length = 'x')": "max_token_length",
    "SELECT * FROM t WHERE match(c)": r"(?s)match.*Candidate functions:.*match\(Utf8, Utf8\)",
    **dict.fromkeys(
        (
            "DELETE FROM t WHERE row_number() OVER () = 1",
            "UPDATE t SET n = 1 WHERE rank() OVER (ORDER BY id) = 1",
            "MERGE INTO t USING s ON row_number() OVER () = 1 WHEN MATCHED THEN DELETE",
            "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND rank() OVER () > 1 THEN DELETE",
            "INSERT INTO t (id, n) VALUES (9, row_number() OVER ())",
            "INSERT INTO t (id, n) VALUES (9, count(*))",
            "SELECT id FROM t WHERE row_number() OVER () = 1",
        ),
        "^an aggregate or window function is not allowed here: compute it in a subquery$",
    ),
    "SELECT $id.n FROM t": "^Dot access not supported for non-string expr: Identifier$",
    "SELECT $1, $2": r"\*\*\{'1': ...\}",
    "SELECT $one, $two": r"mw\.sql\(ctx, text, one=...\)",
    **dict.fromkeys(
        (
            "SELECT * FROM t FOR SYSTEM_TIME BETWEEN '2026-01-01' AND '2026-01-02'",
            "SELECT * FROM t FOR SYSTEM_TIME FROM '2026-01-01' TO '2026-01-02'",
            "SELECT * FROM t FOR SYSTEM_TIME ALL",
            "SELECT * FROM t FOR SYSTEM_VERSION 7",
            "SELECT * FROM t FOR VERSION BETWEEN 1 AND 2",
            "UPDATE t SET n = s.n FROM t FOR TIMESTAMP CONTAINED IN (1, 2) AS s",
        ),
        "only AS OF reads the past, as in VERSION AS OF 7",
    ),
    "SELECT * FROM t WHERE id = 'x": "column 28",
    "SELECT * FROM t WHERE id = 3)": r"found: \), at line 1, column 29",
}


@pytest.mark.parametrize("name", ["nope.public.x", "nope.x", "public.x", "x"])
def test_a_table_of_no_catalog_or_schema_is_none(ctx: datafusion.SessionContext, name: str) -> None:
    assert mw.sql(ctx, f"ALTER TABLE IF EXISTS {name} ADD COLUMN a INT").to_pylist() == []
    assert mw.sql(ctx, f"DROP TABLE IF EXISTS {name}").to_pylist() == []


@each("statement", MISTAKES)
def test_mistakes_lead_on(ctx: datafusion.SessionContext, statement: str) -> None:
    with pytest.raises(mw.InvalidCallError, match=f"(?s){MISTAKES[statement]}") as caught:
        mw.sql(ctx, statement).collect()
    assert caught.type in (mw.InvalidCallError, mw.UnsupportedError)
    assert not INSIDE.search(str(caught.value))
    assert not re.search(r"caused by|\.rs:\d|\w \{ \w|Some\(|Internal error", str(caught.value))


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


def test_version_may_be_a_column_by_another_name(ctx: datafusion.SessionContext) -> None:
    query = "SELECT version AS of FROM (SELECT 7 AS version)"
    assert mw.sql(ctx, query).to_pylist() == [{"of": 7}]


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
            assert any(before(place, edits) == one.start for one in edits)
        else:
            assert text[before(place, edits)] == character
    assert before(len(after), edits) == len(text)
