"""Region expressions: what is allowed in one, and what it gives."""

from __future__ import annotations

import random

import datafusion
import pyarrow as pa
import pytest

from exec_nodes.base.errors import InvalidCallError
from planner.regions import factories as mw
from planner.regions.check import validate
from planner.regions.expression import check_expression, evaluate_expression, known_bucket
from planner.regions.hashing.murmur3 import murmur3
from planner.regions.spec import RegionSpec
from planner.regions.text import spec_of
from tests.each import each

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("s", pa.string()),
        ("ts", pa.timestamp("us")),
        ("b", pa.binary()),
        ("u", pa.uint8()),
        ("big", pa.int64()),
    ]
)


def bound(sql: str, *columns: str, result_type: str = "") -> RegionSpec:
    field = mw.expression(sql, *columns, result_type=result_type)
    return validate(spec_of(field, 1), SCHEMA, SCHEMA.names)


@each(
    "sql, columns, result_type",
    [
        ("col0 % 7", ["id"], "int64"),
        ("upper(left(col0, 2))", ["s"], "utf8"),
        ("date_part('year', col0)", ["ts"], "int32"),
        ("extract(year from col0) * 100 + extract(month from col0)", ["ts"], "int64"),
        ("CASE WHEN col0 > 100 THEN 'big' ELSE 'small' END", ["id"], "utf8"),
        ("coalesce(col0, '') || '-' || col1", ["s", "id"], "utf8"),
        ("abs(murmur3(lower(col0))) % 4 + 1", ["s"], "int64"),
        ("murmur3_multi(col0, col1) & 3", ["s", "b"], "int64"),
        ("CAST(col0 AS BIGINT)", ["u"], "int64"),
    ],
)
def test_deterministic_expressions_are_bound(
    sql: str, columns: list[str], result_type: str
) -> None:
    assert bound(sql, *columns).fields[0].result_type == result_type


@each(
    "sql",
    [
        "now()",
        "current_date",
        "CURRENT_TIMESTAMP",
        "random()",
        "uuid()",
        "today()",
        "version()",
        "current_schema()",
        "col0 + random()",
        "CASE WHEN current_time > '12:00' THEN 1 ELSE 2 END",
        "@@session",
        "$1",
        "(SELECT 1)",
        "sum(col0)",
        "row_number() OVER ()",
        "id",
        '"id"',
        "rows.col0",
        "col1",
        "col0; DROP TABLE x",
        "some_udf(col0)",
        "upper(col0",
        "'open",
        "",
        "arrow_typeof(col0)",
    ],
)
def test_what_is_not_deterministic_and_stateless_is_refused(sql: str) -> None:
    """Protocol rule 12 and specification 1, "Region Expression"."""
    with pytest.raises(InvalidCallError):
        bound(sql, "id")


def test_a_declared_type_that_does_not_come_out_is_refused() -> None:
    """Protocol rule 12: expressions are of the declared type."""
    with pytest.raises(InvalidCallError, match="result type"):
        bound("col0 + 1", "id", result_type="utf8")
    with pytest.raises(InvalidCallError, match="cast it"):
        bound("CAST(col0 AS DOUBLE)", "id")
    assert bound("col0 % 5", "id", result_type="int32").fields[0].result_type == "int32"


def test_a_value_beyond_the_declared_type_is_an_error() -> None:
    with pytest.raises(InvalidCallError, match="beyond"):
        evaluate_expression("col0", [pa.array([2**40])], pa.int32())


def test_an_expression_that_sees_the_width_of_integers_is_refused() -> None:
    """Specification 1, "Type-promotion resistant"."""
    for column in ("u", "id", "big"):
        with pytest.raises(InvalidCallError, match=r"other values|fails for"):
            bound("col0 * col0", column)
    bound("murmur3(col0) * 2", "u")


def test_the_lowest_hash_does_not_overflow() -> None:
    """Protocol rule 12: abs() runs in 64 bits."""
    column = pa.array(range(1000))
    result = evaluate_expression("abs(murmur3(col0)) + 0", [column], None)
    assert result.type == pa.int64()
    assert result.to_pylist() == [abs(h) for h in murmur3(column).to_pylist()]


def test_hash_calls_nest_and_take_any_type() -> None:
    column = pa.array([b"a", None])
    inner = murmur3(column).cast(pa.int64())
    assert evaluate_expression("murmur3(murmur3(col0))", [column], None) == murmur3(inner).cast(
        pa.int64()
    )
    with pytest.raises(InvalidCallError, match="one argument"):
        evaluate_expression("murmur3(col0, col0)", [column], None)


def test_the_word_murmur3_in_a_text_is_not_a_call() -> None:
    result = evaluate_expression("concat('murmur3(col0)', col0)", [pa.array(["x"])], None)
    assert result.to_pylist() == ["murmur3(col0)x"]


def test_rows_keep_their_order() -> None:
    column = pa.array(range(200_000))
    assert evaluate_expression("col0 + 1", [column], None).to_pylist() == list(range(1, 200_001))


def test_a_removed_column_is_null_of_its_own_type() -> None:
    """Protocol rule 12: a removed source column is NULL."""
    spec = bound("date_part('year', col0)", "ts")
    assert spec.evaluate(pa.table({"x": [1]})).column(0).to_pylist() == [None]


@each(
    "sql, columns, expected",
    [
        ("abs(murmur3(col0)) % 16", 1, ("bucket", 16)),
        (" ABS( murmur3( col0 ) )  %  16 ", 1, ("bucket", 16)),
        ("abs(murmur3_multi(col0, col1)) % 3", 2, ("multi_bucket", 3)),
        ("abs(murmur3_multi(col0)) % 3", 1, ("multi_bucket", 3)),
        ("abs(murmur3_multi(col1, col0)) % 3", 2, None),
        ("abs(murmur3(col0)) % 0", 1, None),
        ("abs(murmur3(col0)) % 16 + 1", 1, None),
        ("abs(murmur3(col0, col1)) % 16", 2, None),
        ("murmur3(col0) % 16", 1, None),
    ],
)
def test_bucket_expressions_are_recognised(
    sql: str, columns: int, expected: tuple[str, int] | None
) -> None:
    assert known_bucket(sql, columns) == expected


def test_a_recognised_bucket_equals_its_expression() -> None:
    column = pa.array([1, None, -5, 2**40])
    table = pa.table({"id": column})
    written = evaluate_expression("abs(murmur3(col0)) % 16", [column], pa.int32())
    assert spec_of(mw.bucket("id", 16), 1).evaluate(table).column(0).combine_chunks() == written


@each("sql", ["rpad(col0, 2147483647, 'x')", "LPAD(col0, 10)", "repeat('x', 2147483647)"])
def test_texts_that_a_few_characters_make_huge_are_refused(sql: str) -> None:
    """Expressions come from the table: DataFusion would end the process."""
    with pytest.raises(InvalidCallError, match="neither a source column"):
        check_expression(sql, 1)


HIDDEN = [
    "col0 /*! + random() */",
    "col0 /* a remark */ + 1",
    "col0 -- a remark",
    "col0 # random()",
    "`random`() + col0",
    '"col0" + 1',
    "[col0]",
    "E'\\'' || random() || E'\\''",
    "n'x' || col0",
    "$$a$$ || col0",
    "col0 || $1",
    "@col0",
    "{fn random()}",
    "col0; DROP TABLE t",
    "'a",
    "col0 \\ 1",
    "ra\u200bndom()",
    "\uff32andom()",
]


@each("sql", HIDDEN)
def test_what_parsers_read_in_several_ways_is_refused(sql: str) -> None:
    """What is a remark to one of them is a call of random() to another."""
    with pytest.raises(InvalidCallError, match=r"is not allowed|is neither"):
        check_expression(sql, 1)


def test_whatever_is_allowed_gives_the_same_each_time() -> None:
    rng = random.Random("expressions")
    pieces = ["col0", "random()", "'", "''", "/*", "*/", "/*!", "--", "\n", "+", "||", "(", ")",
              '"', "`", "$$", "E'", "x'", "\\", "#", " ", "1", "//", ";"]  # fmt: skip
    rows, allowed = [pa.array([1, 2, 3])], 0
    for _ in range(20_000):
        sql = "".join(rng.choices(pieces, k=rng.randrange(2, 9)))
        try:
            check_expression(sql, 1)
        except InvalidCallError:
            continue
        if "random" in sql:
            allowed += 1
            try:
                first = evaluate_expression(sql, rows, None)
            except InvalidCallError:
                continue
            assert first.equals(evaluate_expression(sql, rows, None)), sql
    assert allowed  # as a text


def test_an_expression_is_evaluated_inside_a_running_query() -> None:
    """DataFusion's Python package panics when a thread of its runtime has to wait."""

    def remainder(values: pa.Array) -> pa.Array:
        return evaluate_expression("col0 % 3", [values], pa.int64())

    context = datafusion.SessionContext()
    context.register_udf(
        datafusion.udf(remainder, [pa.int64()], pa.int64(), "immutable", "remainder")
    )
    context.register_record_batches("t", [[pa.record_batch({"a": pa.array(range(7))})]])
    found = context.sql("SELECT remainder(a) AS r FROM t").to_arrow_table()
    assert found["r"].to_pylist() == [0, 1, 2, 0, 1, 2, 0]
