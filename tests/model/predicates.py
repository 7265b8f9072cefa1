"""Random WHERE clauses, as SQL and as a Python function with SQL's three-valued logic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.model.kinds import KeyKind
from tests.model.oracle import Row

Truth = bool | None
FRACTIONS = (0.0, 0.5, 0.25, 4.0, 15.5, -1.75)
TEXTS = (None, "", "a", "b", "ä'o", "a%b", "日本", "abc" * 5)


@dataclass(frozen=True)
class Predicate:
    """A WHERE clause; `holds` says True, False or None (unknown) for a key and its row."""

    sql: str
    holds: Callable[[int, Row], Truth]

    def __call__(self, n: int, row: Row) -> bool:
        return self.holds(n, row) is True


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compare_val(op: str, bound: int) -> Predicate:
    test = _COMPARE[op]
    return Predicate(
        f"val {op} {bound}", lambda n, row: None if row.val is None else test(row.val, bound)
    )


def _between(low: int, high: int) -> Predicate:
    return Predicate(
        f"val BETWEEN {low} AND {high}",
        lambda n, row: None if row.val is None else low <= row.val <= high,
    )


def _compare_w(op: str, bound: float) -> Predicate:
    test = _COMPARE[op]
    return Predicate(f"w {op} {bound}", lambda n, row: test(row.w, bound))


def _w_in(first: float, second: float) -> Predicate:
    return Predicate(f"w IN ({first}, {second})", lambda n, row: row.w in (first, second))


def _w_inside(low: float, high: float) -> Predicate:
    # Often between two neighbouring integers, where a float is but no integer.
    return Predicate(f"w > {low} AND w < {high}", lambda n, row: low < row.w < high)


def _w_between(low: float, high: float) -> Predicate:
    return Predicate(f"w BETWEEN {low} AND {high}", lambda n, row: low <= row.w <= high)


def _is_null(column: str, negated: bool) -> Predicate:
    return Predicate(
        f"{column} IS {'NOT ' if negated else ''}NULL",
        lambda n, row: (getattr(row, column) is None) != negated,
    )


def _txt_is(text: str) -> Predicate:
    return Predicate(
        f"txt = {_text(text)}", lambda n, row: None if row.txt is None else row.txt == text
    )


def _txt_in(first: str, second: str) -> Predicate:
    return Predicate(
        f"txt IN ({_text(first)}, {_text(second)})",
        lambda n, row: None if row.txt is None else row.txt in (first, second),
    )


def _txt_like(start: str) -> Predicate:
    return Predicate(
        f"txt LIKE {_text(start + '%')}",
        lambda n, row: None if row.txt is None else row.txt.startswith(start),
    )


def _computed(divisor: int) -> Predicate:
    # Not a shape that a source can evaluate for us: stays above the scan or runs in memory.
    return Predicate(
        f"abs(val) % {divisor} = 1 AND w >= 0.5",
        lambda n, row: _and(None if row.val is None else abs(row.val) % divisor == 1, row.w >= 0.5),
    )


def key_is(kind: KeyKind, key: int) -> Predicate:
    return Predicate(kind.equals(key), lambda n, row: n == key)


def key_in(kind: KeyKind, keys: list[int]) -> Predicate:
    wanted = {kind.value(k)[0] for k in keys} if len(kind.columns) == 1 else set()
    if wanted:
        return Predicate(kind.any_of(keys), lambda n, row: kind.value(n)[0] in wanted)
    chosen = set(keys)
    return Predicate(kind.any_of(keys), lambda n, row: n in chosen)


def key_compare(kind: KeyKind, op: str, key: int) -> Predicate:
    """A comparison of the first key column with that of key number `key`."""
    bound = kind.value(key)[0]
    literal = kind.columns[0].literal(bound)
    test = _COMPARE[op]
    return Predicate(
        f"{kind.columns[0].name} {op} {literal}", lambda n, row: test(kind.value(n)[0], bound)
    )


def _and(a: Truth, b: Truth) -> Truth:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _or(a: Truth, b: Truth) -> Truth:
    if a is True or b is True:
        return True
    return None if a is None or b is None else False


def both(a: Predicate, b: Predicate) -> Predicate:
    return Predicate(
        f"({a.sql}) AND ({b.sql})", lambda n, row: _and(a.holds(n, row), b.holds(n, row))
    )


def either(a: Predicate, b: Predicate) -> Predicate:
    return Predicate(
        f"({a.sql}) OR ({b.sql})", lambda n, row: _or(a.holds(n, row), b.holds(n, row))
    )


def negated(a: Predicate) -> Predicate:
    def holds(n: int, row: Row) -> Truth:
        truth = a.holds(n, row)
        return None if truth is None else not truth

    return Predicate(f"NOT ({a.sql})", holds)


def on_values(rng: Random) -> Predicate:
    """One predicate on columns outside the key."""
    texts = [t for t in TEXTS if t is not None]
    return rng.choice(
        (
            lambda: compare_val(rng.choice(list(_COMPARE)), rng.randint(-5, 15)),
            lambda: _between(rng.randint(-5, 5), rng.randint(0, 15)),
            lambda: _is_null(rng.choice(("val", "txt", "tags")), rng.random() < 0.5),
            lambda: _txt_is(rng.choice(texts)),
            lambda: _txt_in(rng.choice(texts), rng.choice(texts)),
            lambda: _txt_like(rng.choice(("a", "ab", "日"))),
            lambda: _compare_w(rng.choice(list(_COMPARE)), rng.choice(FRACTIONS)),
            lambda: _w_in(rng.choice(FRACTIONS), rng.choice(FRACTIONS)),
            lambda: _w_inside(rng.choice((-2, 0, 0.2, 15.2)), rng.choice((-1, 1, 0.3, 15.8))),
            lambda: _w_between(rng.choice((-1.9, 0.2, 15)), rng.choice((-1.5, 0.4, 16))),
            lambda: _computed(rng.choice((2, 3))),
        )
    )()


def on_keys(rng: Random, kind: KeyKind, keys: int) -> Predicate:
    """One predicate on key columns; key numbers below `keys`."""
    pick = lambda: rng.randrange(keys)  # noqa: E731
    return rng.choice(
        (
            lambda: key_is(kind, pick()),
            lambda: key_in(kind, [pick() for _ in range(rng.randint(1, 12))]),
            lambda: key_compare(kind, rng.choice(list(_COMPARE)), pick()),
            lambda: both(key_compare(kind, ">=", pick()), key_compare(kind, "<", pick())),
        )
    )()


def any_predicate(rng: Random, kind: KeyKind, keys: int) -> Predicate:
    """A predicate of one to three parts."""
    part = lambda: on_values(rng) if rng.random() < 0.5 else on_keys(rng, kind, keys)  # noqa: E731
    predicate = part()
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        predicate = rng.choice((both, either))(predicate, part())
        # DataFusion 55 turns `txt IN ('a') AND txt IN ('b')` into false, also where txt is null.
        if rng.random() < 0.2 and predicate.sql.count("txt IN") < 2:
            predicate = negated(predicate)
    return predicate
