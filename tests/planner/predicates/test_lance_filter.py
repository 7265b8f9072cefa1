"""What is pushed into Lance keeps the rows that DataFusion keeps, or is not pushed.

`MEMWAL_SOAK=10` asks every comparison in every shape and ten times as many compounds of them, else
a sample; `MEMWAL_SEED=...` draws another one. A failure prints all conditions that differ.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import lance
import pyarrow as pa
import pytest

from exec_nodes.keys.keys import KeyBatch
from exec_nodes.keys.sql import key_condition
from memwal_sql.index.kinds import SCALAR_KINDS
from planner.predicates.expr import And, Compare, In, Like, Literal, Not, Operand, Predicate
from planner.predicates.lance_filter import lance_filter
from tests.each import each
from tests.planner.predicates.said import Said
from tests.soak import SOAK

SEED = os.environ.get("MEMWAL_SEED", "1")
_SECONDS = [0, None, -1, 1_704_067_200, 10**9, -(10**9)]


def _moments(unit: str, zone: str | None = None) -> pa.Array:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    values = [None if v is None else v * factor for v in _SECONDS]
    return pa.array(values, pa.timestamp(unit, zone))


TABLE = pa.table(
    {
        "id": pa.array([1, 2, 3, None, -5, 5], pa.int32()),
        "big": pa.array([1, 2**53, 2**53 + 1, None, -(2**63), 2**63 - 1]),
        "u": pa.array([1, 2, 2**64 - 1, None, 2**63, 0], pa.uint64()),
        "tiny": pa.array([1, None, -128, 127, 0, 5], pa.int8()),
        "a b": ["x", None, "", "é😀\n", "it's", "X"],
        "Sx": ["x", None, "", "é😀\n", "it's", "X"],
        "s": ["x", None, "", "é😀\n", "it's", "a%b"],
        "order": ["a\\b", None, "a'b", "a%b", "", "\\"],
        "ls": pa.array(["x", None, "", "é", "it's", "X"], pa.large_string()),
        "sec": _moments("s"),
        "ts": _moments("us"),
        "ns": _moments("ns"),
        "utc": _moments("us", "UTC"),
        "rome": _moments("us", "Europe/Rome"),
        "d": pa.array([0, None, -1, 19_723, 10_000, -10_000], pa.date32()),
        "dec": pa.array(
            [None if v is None else Decimal(v) for v in ["1.5", None, "0", "-1.5", "9.99", "2"]],
            pa.decimal128(10, 2),
        ),
        "f": [1.5, None, float("nan"), -0.0, 0.0, float("inf")],
        "f32": pa.array([1.5, None, float("nan"), -0.0, 0.1, 2.5], pa.float32()),
        "b": [b"x", None, b"", b"\0", b"ab", b"it"],
        "fb": pa.array([b"abcd", None, b"abce", b"\0\0\0\0", b"zzzz", b"ab' "], pa.binary(4)),
        "bo": [True, False, None, True, False, None],
    }
)

# Lance refuses columns of these types.
NOT_INDEXED = {"BLOOMFILTER": ("dec", "bo")}
Scan = Callable[[str], list[int]]
SAID = Said(TABLE.schema)

COMPARED = [
    ("id", "3"),
    ("id", "3.5"),
    ("id", "3.0"),
    ("id", "3000000000"),
    ("tiny", "-128"),
    ("tiny", "300"),
    ("big", "9223372036854775807"),
    ("big", "-9223372036854775808"),
    ("big", "9007199254740993"),
    ("big", "9007199254740993.0"),
    ("u", "18446744073709551615"),
    ("u", "9223372036854775808"),
    ("u", "-1"),
    ('"a b"', "'x'"),
    ('"Sx"', "'it''s'"),
    ("s", "''"),
    ("s", "'é😀\n'"),
    ("s", '"Sx"'),
    ('"order"', "'a\\b'"),
    ('"order"', "'\\'"),
    ("ls", "'x'"),
    ("sec", "TIMESTAMP '2024-01-01 00:00:00'"),
    ("ts", "TIMESTAMP '2024-01-01 00:00:00'"),
    ("ts", "TIMESTAMP '1969-12-31 23:59:59'"),
    ("ts", "TIMESTAMP '2024-01-01 00:00:00.0000005'"),
    ("ns", "TIMESTAMP '2024-01-01 00:00:00.000000001'"),
    ("utc", "'2024-01-01T01:00:00+01:00'"),
    ("rome", "'2024-01-01T01:00:00+01:00'"),
    ("rome", "'2024-01-01 01:00:00'"),
    ("d", "DATE '2024-01-01'"),
    ("d", "DATE '1942-08-15'"),
    ("CAST(ts AS DATE)", "DATE '2024-01-01'"),
    ('"dec"', "1.5"),
    ('"dec"', "1.555"),
    ('"dec"', "-1.5"),
    ("f", "0.0"),
    ("f", "-0.0"),
    ("f", "1.5"),
    ("f", "2"),
    ("f", "'NaN'"),
    ("f32", "0.1"),
    ("b", "X'6162'"),
    ("b", "X''"),
    ("fb", "X'61626364'"),
    ("bo", "true"),
]
SHAPES = [
    *[f"{{left}} {op} {{right}}" for op in ("=", "<>", "<", "<=", ">", ">=")],
    "{left} IS DISTINCT FROM {right}",
    "{left} IS NOT DISTINCT FROM {right}",
    "{left} IN ({right}, {right}, {right}, {right}, NULL)",
    "{left} NOT IN ({right}, {right}, {right}, {right})",
    "NOT ({left} > {right})",
    "({left} > {right}) IS NOT TRUE",
    "{left} IS NULL",
    "{left} IS NOT NULL",
]
SHAPES_OF_EACH = len(SHAPES) if SOAK > 1 else 4
COMPOUNDS = ["({a}) AND ({b})", "({a}) OR ({b})", "NOT (({a}) AND ({b}))", "NOT (({a}) OR ({b}))"]
ODD = [
    "f IN (0.0, 1.5, 2.0, 3.0)",
    "id BETWEEN 1 AND 3",
    "id NOT BETWEEN 1 AND 3",
    "id IN (1, 2, 3)",
    "id IN (1, 2, 3, 4, 5)",
    "id NOT IN (1, 2, 3, 4, NULL)",
    "s IN ('a', 'x', 'c', 'd', NULL)",
    "id = 1 OR s = '' AND big > 5",
    "NOT (id = 1 AND s = 'x')",
    "NOT (id = 1 OR s = 'x')",
    "bo",
    "NOT bo",
    "bo IS TRUE",
    "bo IS NOT FALSE",
    "bo IS UNKNOWN",
    "(id = 1) = (big = 1)",
    "id = big",
    "id + 1 = 4",
    "s LIKE 'a%'",
    "s NOT LIKE 'x%'",
    "s ILIKE 'X%'",
    "s LIKE '_'",
    "s LIKE ''",
    "s LIKE 'a\\%b'",
    "ls LIKE 'x%'",
    "left(s, 1) = 'a'",
    "date_part('month', ts) = 1",
    "CASE WHEN id = 1 THEN true ELSE false END",
    "s ~ 'a.*'",
]


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scan]:
    """A scan of the table without indexes, and with those of each kind."""
    return {kind: _scan(tmp_path_factory.mktemp(kind), kind) for kind in ("none", *SCALAR_KINDS)}


def _scan(folder: Path, kind: str) -> Scan:
    dataset = lance.write_dataset(TABLE, str(folder / "table"))
    if kind in SCALAR_KINDS:
        for column in ("id", "big", "u", "s", "ts", "utc", "d", "dec", "f", "bo"):
            if column not in NOT_INDEXED.get(kind, ()):
                dataset.create_scalar_index(column, kind)

    def rows(condition: str) -> list[int]:
        scanner = dataset.scanner(columns=[], with_row_id=True, filter=condition)
        return sorted(scanner.to_table().column("_rowid").to_pylist())

    return rows


@pytest.fixture(scope="module")
def context() -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    numbered = TABLE.append_column("row", pa.array(range(len(TABLE))))
    context.register_record_batches("t", [numbered.to_batches()])
    return context


def conditions(rng: Random) -> Iterator[str]:
    """The odd ones, some shapes of each comparison, and compounds of two of these."""
    yield from ODD
    simple = [
        shape.format(left=left, right=right)
        for left, right in COMPARED
        for shape in rng.sample(SHAPES, SHAPES_OF_EACH)
    ]
    yield from simple
    for _ in range(40 * SOAK):
        a, b = rng.sample(simple, 2)
        yield rng.choice(COMPOUNDS).format(a=a, b=b)


@pytest.mark.slow
def test_lance_keeps_the_rows_that_datafusion_keeps(
    scans: dict[str, Scan], context: datafusion.SessionContext
) -> None:
    pushed_in_all, wrong = 0, []
    for condition in conditions(Random(f"{SEED}/filters for Lance")):
        table = context.sql(f"SELECT row FROM t WHERE {condition}").to_arrow_table()
        expected = sorted(table.column(0).to_pylist()) if table.num_columns else []
        said = SAID(condition)
        if said and (pushed := lance_filter(And(said), TABLE.schema)) is not None:
            pushed_in_all += 1
            rows = {kind: scan(pushed) for kind, scan in scans.items()}
            wrong += [(condition, kind, rows[kind]) for kind in rows if rows[kind] != expected]
    assert wrong == []
    assert pushed_in_all > 100


@each(
    "sql",
    [
        "id = 3",
        "\"a b\" = 'x'",
        "(id = 1 OR id = 2) OR id = 3",
        "id IN (1, 2, 3, 4)",
        "f > 1.5",
        "ts >= TIMESTAMP '2024-01-01 00:00:00'",
        "utc < '2024-01-01T00:00:00+00:00'",
        '"dec" = 1.50',
        "b = X'6162'",
        "s LIKE 'a%b'",
        "NOT bo",
        "s IS NOT NULL",
    ],
)
def test_common_filters_are_pushed(sql: str) -> None:
    (said,) = SAID(sql)
    assert lance_filter(said, TABLE.schema) is not None


@each(
    "sql",
    [
        "f = 'NaN'",
        "f32 = 0.1",
        "f IN (0.0, 1.0, 2.0, 3.0)",
        "rome > '2024-01-01T00:00:00+00:00'",
        "CAST(id AS DOUBLE) = 3.5",
        "left(s, 1) = 'a'",
        "id = 3 OR left(s, 1) = 'a'",
        "s LIKE 'a\\%b'",
        "(id = 3) IS TRUE",
        "big = -9223372036854775808",
    ],
)
def test_filters_that_lance_may_read_otherwise_are_not_pushed(sql: str) -> None:
    (said,) = SAID(sql)
    assert lance_filter(said, TABLE.schema) is None


def test_columns_are_written_in_backquotes() -> None:
    """Lance takes a double-quoted name for a string and would keep no row."""
    (said,) = SAID("\"a b\" = 'it''s'")
    assert lance_filter(said, TABLE.schema) == "`a b` = 'it''s'"


_PIECES = [
    "'", "''", '"', '""', "\\", "\\'", "`", "``", "-", "--", ")", "(", ";", "%", "_", "\0", "\n",
    "é", "😀", "a", "B", " OR ", " AND ", "NULL", "1", "/*", "*/", "/*!", "$1", "$$", "{", "}", ",",
    "=", "x'", "E'", "\\' OR 1=1) --", "' OR ''='", "#",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])
def test_odd_texts_and_names_mean_the_same_to_lance(indexed: bool, tmp_path: Path) -> None:
    """What is printed for Lance is parsed by it: every text must come out as it went in."""
    rng = Random("texts for Lance")
    for number in range(2 * SOAK):
        name = "".join(p for p in rng.choices(_PIECES, k=5) if "\0" not in p) + "c"
        texts = sorted({"".join(rng.choices(_PIECES, k=rng.randrange(5))) for _ in range(40)})
        kinds = {pa.string(): texts, pa.binary(): [text.encode() for text in texts]}
        for kind, values in kinds.items():
            rows = pa.table([pa.array(values, kind), range(len(values))], names=[name, "row"])
            dataset = lance.write_dataset(rows, str(tmp_path / f"{number}-{kind}"))
            if indexed:
                dataset.create_scalar_index(name, "BTREE")
            scan = partial(_scanned, dataset)
            for row, value in enumerate(values):
                _check_text(rows.schema, name, Literal(kind, value), values, row, scan)


def _scanned(dataset: Any, condition: str) -> list[int]:
    found: list[int] = (
        dataset.scanner(columns=["row"], filter=condition).to_table()["row"].to_pylist()
    )
    return sorted(found)


def _check_text(
    schema: pa.Schema, name: str, literal: Literal, values: list[Any], row: int, scan: Scan
) -> None:
    column, last = Operand(name), len(values) - 1
    expected: list[tuple[Predicate, list[int]]] = [
        (Compare(column, "=", literal), [row]),
        (Not(In(column, literal.type, (literal.value, values[last]))),
         [other for other in range(last) if other != row]),
        (Compare(column, ">", literal), [at for at, v in enumerate(values) if v > values[row]]),
    ]  # fmt: skip
    if isinstance(literal.value, str) and not {"%", "_"} & set(literal.value):
        starts = [at for at, v in enumerate(values) if v.startswith(literal.value)]
        expected.append((Like(column, literal.value + "%", False), starts))
    for predicate, rows in expected:
        pushed = lance_filter(predicate, schema)
        assert pushed is None or scan(pushed) == rows, (name, literal, pushed)
        assert (pushed is None) == ("`" in name or _escapes(predicate)), (name, literal)
    condition = key_condition(KeyBatch(pa.table([pa.array([literal.value], literal.type)], [name])))
    if condition is not None:
        assert scan(condition) == [row], (name, literal, condition)


def _escapes(predicate: Predicate) -> bool:
    return isinstance(predicate, Like) and "\\" in predicate.pattern
