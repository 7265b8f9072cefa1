"""The checker of histories tells those that can have happened from those that can't."""

from __future__ import annotations

from itertools import permutations
from math import inf
from random import Random

from tests.each import each
from tests.histories.register import Kind, Operation, Value, explains

SIZE = 6


def op(kind: Kind, value: Value, start: float, end: float) -> Operation:
    return Operation(kind, 0, value, start, end)


def write(value: Value, start: float, end: float = inf) -> Operation:
    return op(Kind.WRITE, value, start, end)


def read(value: Value, start: float, end: float) -> Operation:
    return op(Kind.READ, value, start, end)


@each(
    "history, possible",
    [
        ([], True),
        ([read(None, 0, 1)], True),
        ([read(1, 0, 1)], False),
        ([write(1, 0, 1), read(None, 2, 3)], False),  # an acknowledged row is missed
        ([write(1, 0, 3), read(None, 1, 2)], True),
        ([write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)], False),  # an older row comes back
        ([write(1, 0, 3), write(2, 0, 3), read(1, 4, 5)], True),
        ([write(1, 0, 3), write(2, 0, 3), read(1, 4, 5), read(2, 6, 7)], False),
        ([write(1, 0), read(None, 1, 2), read(1, 3, 4)], True),  # an unknown one lands late
        ([write(1, 0), read(1, 1, 2), read(None, 3, 4)], False),
        ([write(1, 0, 1), write(None, 2), read(1, 3, 4), read(None, 5, 6)], True),
        ([write(1, 0, 1), write(None, 2), read(None, 3, 4), read(1, 5, 6)], False),
        ([op(Kind.INSERT, 1, 0, 1), op(Kind.INSERT, 2, 2, 3)], False),
        ([op(Kind.INSERT, 1, 0, 1), op(Kind.TAKEN, None, 2, 3)], True),
        ([op(Kind.TAKEN, None, 0, 1)], False),
        ([write(1, 0, 1), write(None, 2, 3), op(Kind.INSERT, 2, 4, 5), read(2, 6, 7)], True),
    ],
)
def test_what_a_register_can_have_answered(history: list[Operation], possible: bool) -> None:
    assert explains(history) is possible


def test_it_finds_what_trying_every_order_finds() -> None:
    rng = Random("register")
    found = {True: 0, False: 0}
    for _ in range(300):
        history = [_drawn(rng, number) for number in range(SIZE)]
        expected = any(
            _is_order(order) and _answers(order)
            for left_out in _subsets([one for one in history if one.is_unknown])
            for order in permutations([one for one in history if one not in left_out])
        )
        assert explains(history) is expected, history
        found[expected] += 1
    assert min(found.values()) > 30, found


def _drawn(rng: Random, number: int) -> Operation:
    kind = rng.choices(list(Kind), (4, 1, 3, 1))[0]
    start = rng.uniform(0, 10)
    values = {
        Kind.WRITE: rng.choice((number % 3, None)),
        Kind.INSERT: number % 3,
        Kind.READ: rng.choice((None, 0, 1)),
        Kind.TAKEN: None,
    }
    changes = kind in (Kind.WRITE, Kind.INSERT)
    end = inf if changes and rng.random() < 0.3 else start + rng.uniform(0, 5)
    return op(kind, values[kind], start, end)


def _subsets(items: list[Operation]) -> list[list[Operation]]:
    found: list[list[Operation]] = [[]]
    for item in items:
        found += [[*one, item] for one in found]
    return found


def _is_order(order: tuple[Operation, ...]) -> bool:
    return all(b.end >= a.start for i, a in enumerate(order) for b in order[i + 1 :])


def _answers(order: tuple[Operation, ...]) -> bool:
    value: Value = None
    for one in order:
        if one.kind is Kind.READ and one.value != value:
            return False
        if one.kind is Kind.TAKEN and value is None:
            return False
        if one.kind is Kind.INSERT and value is not None:
            return False
        if one.kind in (Kind.WRITE, Kind.INSERT):
            value = one.value
    return True
