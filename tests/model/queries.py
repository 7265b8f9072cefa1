"""Every query shape, asked of the table and of the oracle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

from tests.model.kinds import KeyKind
from tests.model.oracle import Row, Rows, rows_of, schema_of
from tests.model.predicates import (
    FRACTIONS,
    Predicate,
    any_predicate,
    key_in,
    key_is,
    on_values,
)


@dataclass(frozen=True)
class Reader:
    """One way to read the table: a handle, a session in which it is registered as `t`, and the
    consistency of direct reads."""

    kind: KeyKind
    table: Any
    context: Any
    keys: int

    def sql(self, text: str) -> pa.Table:
        """The answer of a SQL query."""
        try:
            return self.context.sql(text).to_arrow_table()
        except Exception as error:
            raise AssertionError(f"{text}: {error}") from error


def live(rows: Rows, predicate: Predicate | None) -> Rows:
    """The rows that a predicate keeps."""
    return rows if predicate is None else {n: r for n, r in rows.items() if predicate(n, r)}


def _same(found: list[Any], expected: list[Any], question: str) -> None:
    if Counter(found) != Counter(expected):
        missing = list((Counter(expected) - Counter(found)).elements())
        extra = list((Counter(found) - Counter(expected)).elements())
        raise AssertionError(f"{question}: missing {missing}, not expected {extra}")


def as_dict(kind: KeyKind, table: pa.Table, question: str) -> Rows:
    """A result with all columns as a dict; a key that occurs twice fails."""
    pairs = rows_of(kind, table)
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = [n for n, count in Counter(n for n, _ in pairs).items() if count > 1]
        raise AssertionError(f"{question}: keys returned twice: {twice}")
    return found


def _where(rng: Random, reader: Reader) -> Predicate | None:
    return any_predicate(rng, reader.kind, reader.keys) if rng.random() < 0.7 else None


def _sql_where(predicate: Predicate | None) -> str:
    return f" WHERE {predicate.sql}" if predicate else ""


def full_scan(rng: Random, reader: Reader, rows: Rows) -> None:
    question = "SELECT * FROM t"
    result = reader.sql(question)
    assert result.column_names == schema_of(reader.kind).names
    _same(list(as_dict(reader.kind, result, question).items()), list(rows.items()), question)


def direct_scan(rng: Random, reader: Reader, rows: Rows) -> None:
    predicate = _where(rng, reader)
    question = f"scan(filter={predicate.sql if predicate else None!r})"
    batches = reader.table.scan(filter=predicate.sql if predicate else None)
    assert batches.schema.names == schema_of(reader.kind).names
    found = as_dict(reader.kind, batches.read_all(), question)
    _same(list(found.items()), list(live(rows, predicate).items()), question)


def filtered(rng: Random, reader: Reader, rows: Rows) -> None:
    predicate = any_predicate(rng, reader.kind, reader.keys)
    question = f"SELECT * FROM t WHERE {predicate.sql}"
    found = as_dict(reader.kind, reader.sql(question), question)
    _same(list(found.items()), list(live(rows, predicate).items()), question)


def projected(rng: Random, reader: Reader, rows: Rows) -> None:
    names = rng.sample(["val", "txt", "w", "op"], rng.randint(1, 3))
    predicate = _where(rng, reader)
    question = f"SELECT {', '.join(names)} FROM t{_sql_where(predicate)}"
    result = reader.sql(question)
    found = list(zip(*(result.column(name).to_pylist() for name in names), strict=True))
    kept = live(rows, predicate).values()
    _same(found, [tuple(getattr(r, name) for name in names) for r in kept], question)


def limited(rng: Random, reader: Reader, rows: Rows) -> None:
    predicate = _where(rng, reader)
    limit = rng.choice((0, 1, 2, 3, 5, 10, 100))
    question = f"SELECT * FROM t{_sql_where(predicate)} LIMIT {limit}"
    if rng.random() < 0.3:
        question = f"scan(limit={limit}, filter={predicate.sql if predicate else None!r})"
        result = reader.table.scan(
            limit=limit, filter=predicate.sql if predicate else None
        ).read_all()
    else:
        result = reader.sql(question)
    found = as_dict(reader.kind, result, question)
    kept = live(rows, predicate)
    assert len(found) == min(limit, len(kept)), f"{question}: {len(found)} rows of {len(kept)}"
    for n, row in found.items():
        assert kept.get(n) == row, f"{question}: key {n} is {row}, expected {kept.get(n)}"


def limited_projection(rng: Random, reader: Reader, rows: Rows) -> None:
    limit = rng.choice((1, 2, 3, 5, 10))
    question = f"SELECT op FROM t LIMIT {limit} OFFSET {rng.choice((0, 1, 3))}"
    offset = int(question.rsplit(" ", 1)[1])
    found = reader.sql(question).column(0).to_pylist()
    assert len(found) == max(0, min(limit, len(rows) - offset)), question
    assert not Counter(found) - Counter(r.op for r in rows.values()), question


def ordered(rng: Random, reader: Reader, rows: Rows) -> None:
    predicate = _where(rng, reader)
    limit = rng.choice((1, 3, 7))
    question = f"SELECT op FROM t{_sql_where(predicate)} ORDER BY op DESC LIMIT {limit}"
    found = reader.sql(question).column(0).to_pylist()
    expected = sorted((r.op for r in live(rows, predicate).values()), reverse=True)[:limit]
    assert found == expected, f"{question}: {found}, expected {expected}"


def counted(rng: Random, reader: Reader, rows: Rows) -> None:
    predicate = _where(rng, reader)
    question = f"SELECT count(*) FROM t{_sql_where(predicate)}"
    found = reader.sql(question).column(0).to_pylist()
    assert found == [len(live(rows, predicate))], f"{question}: {found}, {len(rows)} rows live"


def aggregated(rng: Random, reader: Reader, rows: Rows) -> None:
    predicate = _where(rng, reader)
    question = (
        "SELECT sum(val), min(val), max(op), count(txt), count(DISTINCT txt), sum(w) "
        f"FROM t{_sql_where(predicate)}"
    )
    found = tuple(c.to_pylist()[0] for c in reader.sql(question).columns)
    kept = list(live(rows, predicate).values())
    values = [r.val for r in kept if r.val is not None]
    texts = [r.txt for r in kept if r.txt is not None]
    expected = (
        sum(values) if values else None,
        min(values, default=None),
        max((r.op for r in kept), default=None),
        len(texts),
        len(set(texts)),
        sum(r.w for r in kept) if kept else None,
    )
    assert found == expected, f"{question}: {found}, expected {expected}"


def grouped(rng: Random, reader: Reader, rows: Rows) -> None:
    predicate = _where(rng, reader)
    question = f"SELECT txt, count(*), sum(op) FROM t{_sql_where(predicate)} GROUP BY txt"
    found = list(zip(*(c.to_pylist() for c in reader.sql(question).columns), strict=True))
    groups: dict[str | None, list[int]] = {}
    for row in live(rows, predicate).values():
        groups.setdefault(row.txt, []).append(row.op)
    _same(found, [(k, len(v), sum(v)) for k, v in groups.items()], question)


def joined(rng: Random, reader: Reader, rows: Rows) -> None:
    on = " AND ".join(f"a.{name} = b.{name}" for name in reader.kind.names)
    question = f"SELECT a.op, b.val FROM t a JOIN t b ON {on} WHERE b.val > 3"
    found = list(zip(*(c.to_pylist() for c in reader.sql(question).columns), strict=True))
    expected = [(r.op, r.val) for r in rows.values() if r.val is not None and r.val > 3]
    _same(found, expected, question)


def subquery(rng: Random, reader: Reader, rows: Rows) -> None:
    question = "SELECT count(*) FROM t WHERE val = (SELECT max(val) FROM t)"
    values = [r.val for r in rows.values() if r.val is not None]
    expected = values.count(max(values)) if values else 0
    assert reader.sql(question).column(0).to_pylist() == [expected], question


def point_lookup(rng: Random, reader: Reader, rows: Rows) -> None:
    key = rng.randrange(reader.keys)
    predicates: list[Predicate] = [key_is(reader.kind, key)]
    if rng.random() < 0.5:
        predicates.append(on_values(rng))
    clause = " AND ".join(f"({p.sql})" for p in predicates)
    question = f"SELECT * FROM t WHERE {clause}"
    found = as_dict(reader.kind, reader.sql(question), question)
    expected = {n: r for n, r in rows.items() if all(p(n, r) for p in predicates)}
    _same(list(found.items()), list(expected.items()), question)


def in_list(rng: Random, reader: Reader, rows: Rows) -> None:
    keys = [rng.randrange(reader.keys) for _ in range(rng.choice((1, 2, 3, 4, 9, 20)))]
    predicate = key_in(reader.kind, keys)
    question = f"SELECT * FROM t WHERE {predicate.sql}"
    found = as_dict(reader.kind, reader.sql(question), question)
    _same(list(found.items()), list(live(rows, predicate).items()), question)


def _got(reader: Reader, keys: list[int], asked: Any, rows: Rows, question: str) -> None:
    found = rows_of(reader.kind, reader.table.get(asked))
    expected = [(n, rows[n]) for n in dict.fromkeys(keys) if n in rows]
    assert found == expected, f"{question}: {found}, expected {expected}"


def get_one(rng: Random, reader: Reader, rows: Rows) -> None:
    key = rng.randrange(reader.keys)
    _got(reader, [key], [reader.kind.user_key(key)], rows, f"get([{key}])")


def get_many(rng: Random, reader: Reader, rows: Rows) -> None:
    keys = [rng.randrange(reader.keys) for _ in range(rng.choice((0, 2, 5, 30)))]
    if rng.random() < 0.5:
        _got(reader, keys, reader.kind.table(keys), rows, f"get(table of {keys})")
    else:
        asked = [reader.kind.user_key(n) for n in keys]
        _got(reader, keys, asked, rows, f"get({keys})")


def get_columns(rng: Random, reader: Reader, rows: Rows) -> None:
    keys = list(range(reader.keys))
    result = reader.table.get(reader.kind.table(keys), columns=["op", "val"])
    assert result.column_names == ["op", "val"]
    found = list(zip(*(c.to_pylist() for c in result.columns), strict=True))
    _same(found, [(r.op, r.val) for r in rows.values()], "get(all keys, columns)")


Question = Callable[[Random, Reader, Rows], None]
QUESTIONS: tuple[Question, ...] = (
    full_scan,
    direct_scan,
    filtered,
    projected,
    limited,
    limited_projection,
    ordered,
    counted,
    aggregated,
    grouped,
    joined,
    subquery,
    point_lookup,
    in_list,
    get_one,
    get_many,
    get_columns,
)


def ask(rng: Random, reader: Reader, rows: Rows, count: int | None = None) -> None:
    """Compare `count` random query shapes with the oracle, or all of them."""
    questions = QUESTIONS if count is None else rng.sample(QUESTIONS, count)
    for question in questions:
        question(rng, reader, rows)


def random_row(rng: Random, op: int, texts: tuple[str | None, ...]) -> Row:
    """A row for write number `op`; values collide often, so that filters meet them."""
    return Row(
        val=rng.choice((None, *range(-4, 12))),
        txt=rng.choice(texts),
        w=rng.choice(FRACTIONS),
        tags=rng.choice((None, (), (1,), (op, -op))),
        op=op,
    )
