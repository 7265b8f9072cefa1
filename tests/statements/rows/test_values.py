"""VALUES of several rows, against the same rows one by one."""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.statements.changes.fitting import fitted
from tests.each import each
from tests.soak import SOAK, usual

KINDS = {
    "bigint": pa.int64(),
    "unsigned": pa.uint64(),
    "decimal": pa.decimal128(38, 2),
    "double": pa.float64(),
    "float": pa.float32(),
    "text": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "oslo": pa.timestamp("ms", "Europe/Oslo"),
    "list": pa.list_(pa.float64()),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}
LITERALS = [
    *("9007199254740993", "18446744073709551615", "-9223372036854775808", "-1", "- 1", "7"),
    *(
        "8077772.99256988",
        "0.1",
        "2.0",
        "0.5",
        "1e3",
        "-.25",
        "0.1234567890123456789",
        "CAST(1 AS SMALLINT)",
        "1 + 0.5",
    ),
    *("CAST(0.1 AS DECIMAL(5, 2))", "abs(-3)", "$whole", "$text"),
    *("'7'", "'x'", "'it''s'", "'true'", "E'a\\n'", "X'41'", "true", "NULL", "CAST(NULL AS INT)"),
    *("'2024-01-02'", "'2024-01-02T03:04:05'", "'2024-01-02T03:04:05Z'", "'10:00:00'"),
    *("'2024-01-02 03:04:05+02:00'", "'2024-01-02 03:04:05.5-0130'", "DATE '2024-01-02'"),
    *("TIMESTAMP '2024-01-02T03:04:05'", "TIME '10:00:00'", "DATE '2024-01-02' + INTERVAL '1 day'"),
    "arrow_cast('2024-01-02T03:04:05', 'Timestamp(ns, \"Europe/Oslo\")')",
    "arrow_cast('2024-01-02T03:04:05', 'Timestamp(s)')",
    *(
        "( /* five */ SELECT 5)",
        "(SELECT '2024-01-02')",
        "1 + (select max(column1) FROM (VALUES (2), (3)))",
    ),
    *("[1, 2]", "[0.5, -1]", "['7']", "[]", "[NULL]", "[1, 2][1]", "make_array(1, 2)"),
]
TEXTS = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.string())])
WHOLE = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64())])
PARAMETERS = {"whole": 9007199254740995, "text": "11"}


class Rows:
    """`t`, with a key and one column, and what a statement makes of it."""

    def __init__(self, uri: str, ctx: datafusion.SessionContext, kind: pa.DataType) -> None:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", kind)])
        self.table = mw.register(ctx, "t", mw.create_table(uri, schema, primary_key="id"))
        self.ctx = ctx

    def written(self, literals: Sequence[str]) -> list[Any] | None:
        """The values of rows that have been given these; None for an error."""
        rows = ", ".join(f"({place}, {one})" for place, one in enumerate(literals))
        used = {name: one for name, one in PARAMETERS.items() if f"${name}" in rows}
        try:
            done = mw.sql(self.ctx, f"REPLACE INTO t VALUES {rows} RETURNING n", **used)
        except mw.InvalidCallError:
            return None
        stored = self.table.get(list(range(len(literals))))["n"].to_pylist()
        assert done.to_arrow_table()["n"].to_pylist() == stored
        return stored


@pytest.mark.parametrize(("kind", "as_decimals"), usual([*product(KINDS, [False, True])], 9))
def test_each_value_is_written_as_it_is_alone(
    uri: str, ctx: datafusion.SessionContext, kind: str, as_decimals: bool
) -> None:
    mw.sql(ctx, f"SET datafusion.sql_parser.parse_float_as_decimal = {as_decimals}")
    rows, random = Rows(uri, ctx, KINDS[kind]), Random(kind)
    alone = {one: rows.written([one]) for one in LITERALS}
    fitting = [one for one in LITERALS if alone[one] is not None]
    some = [random.sample(fitting, random.randint(2, 4)) for _ in range(5 * SOAK)]
    some += [random.sample(fitting, len(fitting)) for _ in range(3)]
    for literals in some:
        expected = [value for one in literals for value in alone[one] or ()]
        assert rows.written(literals) == expected, literals
    for wrong in random.sample(sorted(set(LITERALS) - set(fitting)), 5):
        literals = [*random.sample(fitting, 2), wrong]
        assert rows.written(random.sample(literals, 3)) is None, literals
    rows.table.close()


def test_rows_with_queries_keep_their_order(uri: str, ctx: datafusion.SessionContext) -> None:
    table = mw.create_table(uri, WHOLE, primary_key="id")
    mw.register(ctx, "t", table)
    rng = Random(5)
    keys = [rng.randrange(40) for _ in range(200)]
    texts = [str(n) if rng.random() < 0.5 else f"(SELECT {n} FROM t)" for n in range(200)]
    mw.sql(ctx, "INSERT INTO t VALUES (100, (SELECT 7))")
    rows = (f"({key}, {text})" for key, text in zip(keys, texts, strict=True))
    mw.sql(ctx, f"INSERT INTO t VALUES {', '.join(rows)}")
    found = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert found == {100: 7} | dict(zip(keys, range(200), strict=True))
    table.close()


def test_texts_that_look_like_queries_stay_values(uri: str, ctx: datafusion.SessionContext) -> None:
    table = mw.create_table(uri, TEXTS, primary_key="id")
    mw.register(ctx, "t", table)
    rows = ", ".join(f"({n}, '(select {n})')" for n in range(2000))
    shown = str(mw.sql(ctx, f"EXPLAIN INSERT INTO t VALUES {rows}").to_pylist())
    assert "Values" in shown and "Union" not in shown
    mw.sql(ctx, f"INSERT INTO t VALUES {rows}")
    assert table.to_arrow()["v"].to_pylist() == [f"(select {n})" for n in range(2000)]
    table.close()


def test_values_are_computed_once(uri: str, ctx: datafusion.SessionContext) -> None:
    calls: list[int] = []

    def counted(given: pa.Array) -> pa.Array:
        calls.extend(given.to_pylist())
        return given

    ctx.register_udf(datafusion.udf(counted, [pa.int64()], pa.int64(), "volatile", "counted"))
    rows = Rows(uri, ctx, pa.float64())
    assert rows.written(["counted(3)", "'0.5'", "counted(4)", "2.0"]) == [3.0, 0.5, 4.0, 2.0]
    assert sorted(calls) == [3, 4]
    rows.table.close()


@pytest.mark.parametrize(
    ("kind", "wrong", "form"),
    [
        (pa.time32("s"), "abc", "a time of day, such as '12:30:00'"),
        (pa.time64("ns"), "25:00:00", "a time of day"),
        (pa.time64("us"), "2026-01-31", "a time of day"),
        (pa.timestamp("us"), "12:30", "a time, such as '2026-01-31 12:30:00'"),
        (pa.timestamp("s", "Europe/Oslo"), "2026-13-01", "a time, such as"),
        (
            pa.timestamp("us", "Europe/Oslo"),
            "2026-03-29 02:30",  # clocks go from 2 to 3
            "a time, such as '2026-01-31 12:30:00', unambiguous in timezone 'Europe/Oslo'",
        ),
        (pa.timestamp("ns"), "2300-01-01", "a time from 1678 to 2261, such as"),
        (pa.timestamp("ns", "UTC"), "1500-01-01T00:00:00Z", "a time from 1678 to 2261, such as"),
        (pa.date32(), "99999-01-01", "a date, such as '2026-01-31'"),
        (pa.int8(), "300", "a whole number from -128 to 127"),
        (pa.uint64(), "-5", "a whole number from 0 to 18446744073709551615"),
        (pa.float32(), "1e300", "a number up to 3.4e+38"),
        (pa.float64(), "x", "a number up to 1.8e+308"),
        (pa.decimal128(5, 2), "x", "a number of up to 5 digits, 2 of them after the point"),
        (pa.bool_(), "maybe", "'true' or 'false'"),
        (pa.list_(pa.float32(), 2), "[1, 2]", "a list, such as [0.5, 1]"),
        (pa.struct({"a": pa.int64()}), "x", "a struct, such as {a: 1}"),
        (pa.duration("s"), "x", "a value of that type, or a CAST"),
    ],
    ids=str,
)
def test_a_text_that_is_none_of_the_type_is_named_with_the_form_of_one(
    uri: str, ctx: datafusion.SessionContext, kind: pa.DataType, wrong: str, form: str
) -> None:
    rows = Rows(uri, ctx, kind)
    article = "an" if str(kind).startswith("int") else "a"
    error = re.escape(f"column 'n': {wrong!r} is not {article} {kind}: give {form}")
    ctx.from_pydict({"id": range(5), "n": [None, *[wrong] * 2, None, wrong]}, name="given")
    for statement in (f"VALUES (1, NULL), (2, '{wrong}')", "SELECT id, n FROM given"):
        with pytest.raises(mw.InvalidCallError, match=f"^{error}"):
            mw.sql(ctx, f"INSERT INTO t {statement}")
    assert rows.table.count_rows() == 0
    mw.sql(ctx, "INSERT INTO t SELECT id, n FROM given WHERE n IS NULL")
    assert rows.table.to_arrow()["n"].to_pylist() == [None, None]
    rows.table.close()


def test_the_first_of_texts_that_are_none_is_named() -> None:
    for place in range(7):
        texts = [str(n) for n in range(7)]
        texts[place] = "wrong"
        texts[-1:] = ["last"]
        field = pa.field("n", pa.int64())
        with pytest.raises(mw.InvalidCallError, match="'wrong'" if place < 6 else "'last'"):
            fitted(pa.array(texts), field)


def test_texts_with_and_without_a_zone_are_read_in_that_of_the_column(
    uri: str, ctx: datafusion.SessionContext
) -> None:
    rows = Rows(uri, ctx, pa.timestamp("us", "Europe/Oslo"))
    texts = ["2024-01-02", "2024-01-02T03:04:05Z", "2024-01-02 03:04:05", "2024-01-02 03:04-05:30"]
    ctx.from_pydict({"id": list(range(5)), "n": [*texts, None]}, name="times")
    mw.sql(ctx, "INSERT INTO t SELECT * FROM times")
    midnight, hour = datetime(2024, 1, 1, 23, tzinfo=UTC), timedelta(hours=1)
    of_day = timedelta(hours=3, minutes=4)
    assert rows.table.get([0, 1, 2, 3, 4])["n"].to_pylist() == [
        midnight,
        midnight + hour + of_day + timedelta(seconds=5),
        midnight + of_day + timedelta(seconds=5),
        midnight + hour + of_day + timedelta(hours=5, minutes=30),
        None,
    ]
    rows.table.close()


# Of each text, the type of its column, and the value there.
WRITTEN: dict[str, tuple[pa.DataType, Any]] = {
    "'2020-01-02 03:04:05'": (pa.timestamp("us", "Europe/Amsterdam"), "2020-01-02T03:04:05+01:00"),
    "'2020-01-02T03:04:05Z'": (pa.timestamp("us", "UTC"), "2020-01-02T03:04:05+00:00"),
    "'2020-01-02'": (pa.date32(), "2020-01-02"),
    "DATE '2020-01-02'": (pa.timestamp("ms", "UTC"), "2020-01-02T00:00:00+00:00"),
    "TIMESTAMP '2020-01-02T03:04:05.123456789'": (
        pa.timestamp("ms", "Asia/Tokyo"),
        "2020-01-02T03:04:05.123000+09:00",
    ),
    "TIMESTAMP '2020-01-02T03:04:05'": (pa.timestamp("s"), "2020-01-02T03:04:05"),
    "'1.25'": (pa.decimal128(9, 2), "1.25"),
    "1.25": (pa.decimal128(9, 2), "1.25"),
    "3": (pa.decimal128(9, 2), "3.00"),
    "[3]": (pa.list_(pa.decimal128(9, 2)), "[Decimal('3.00')]"),
    "'10:30'": (pa.time64("us"), "10:30:00"),
    "'10:30:05.25'": (pa.time32("ms"), "10:30:05.250000"),
    "[1, 2]": (pa.list_(pa.float32(), 2), "[1.0, 2.0]"),
    "[0.9, 2]": (pa.list_(pa.float32(), 2), "[0.8999999761581421, 2.0]"),
    "[0.9, NULL]": (pa.list_(pa.float16()), "[0.89990234375, None]"),
    "[[0.9]]": (pa.list_(pa.large_list(pa.float32())), "[[0.8999999761581421]]"),
    "[{x: 0.9, n: 1}]": (
        pa.list_(pa.struct({"x": pa.float32(), "n": pa.int64()})),
        "[{'x': 0.8999999761581421, 'n': 1}]",
    ),
    "{a: 1}": (pa.struct({"a": pa.int16()}), "{'a': 1}"),
    """'{"a": 1}'""": (pa.json_(), '{"a":1}'),
    "'abc'": (pa.binary(), "b'abc'"),
    "true": (pa.bool_(), "True"),
    "NULL": (pa.list_(pa.int32()), "None"),
}


@each("text", WRITTEN)
def test_values_are_read_as_the_types_of_their_columns(
    uri: str, ctx: datafusion.SessionContext, text: str
) -> None:
    kind, expected = WRITTEN[text]
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "v": kind}), primary_key="id")
    mw.register(ctx, "t", table)
    mw.sql(ctx, f"INSERT INTO t VALUES (1, {text})")
    mw.sql(ctx, f"INSERT INTO t (id, v) VALUES (2, {text}) ON CONFLICT DO NOTHING")
    mw.sql(ctx, "INSERT INTO t VALUES (3, NULL)")
    mw.sql(ctx, f"UPDATE t SET v = {text} WHERE id = 3")
    mw.sql(ctx, "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")
    found = [getattr(v, "isoformat", v.__str__)() for v in table.to_arrow()["v"].to_pylist()]
    assert found == [expected] * 3
    table.close()


@pytest.mark.parametrize("time", ["2024-03-31 02:30:00", "2024-10-27 02:30:00"])
@pytest.mark.parametrize("kind", ["", "TIMESTAMP "])
def test_a_time_that_a_zone_lacks_or_has_twice_is_refused(
    uri: str, ctx: datafusion.SessionContext, kind: str, time: str
) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "Europe/Oslo")})
    table = mw.register(ctx, "t", mw.create_table(uri, schema, primary_key="id"))
    with pytest.raises(mw.InvalidCallError, match=r"column 'at': .* timezone 'Europe/Oslo'"):
        mw.sql(ctx, f"INSERT INTO t VALUES (1, {kind}'{time}')")
    table.close()


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_a_text_above_the_largest_float_is_refused(
    uri: str, ctx: datafusion.SessionContext, kind: pa.DataType
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", kind)])
    table = mw.register(ctx, "u", mw.create_table(uri, schema, primary_key="id"))
    for text in ("1e400", " -1E400 "):
        with pytest.raises(mw.InvalidCallError, match=f"column 'x': .*{text}"):
            mw.sql(ctx, f"INSERT INTO u VALUES (1, '2.5'), (2, NULL), (3, '{text}')")
    mw.sql(ctx, "INSERT INTO u VALUES (1, 'inf'), (2, '-Infinity'), (3, NULL), (4, '1.5')")
    assert table.to_arrow().sort_by("id")["x"].to_pylist() == [math.inf, -math.inf, None, 1.5]
    table.close()
