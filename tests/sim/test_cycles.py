"""Each anomaly is found, and nothing else."""

from __future__ import annotations

from tests.each import each
from tests.sim.cycles import Transaction, anomalies

A = Transaction("a", appends={1: 1, 2: 1})
B = Transaction("b", appends={1: 2, 2: 2})
GONE = Transaction("gone", appends={1: 9}, outcome=False)
CASES = {
    "": [A, B, Transaction("r", {1: (1,), 2: (1,)}), Transaction("s", {1: (1, 2), 2: (1, 2)})],
    "G0": [A, B, Transaction("r", {1: (1, 2), 2: (2, 1)})],
    "G1a": [GONE, Transaction("r", {1: (9,)})],
    "G1c": [
        Transaction("a", {2: (2,)}, {1: 1}),
        Transaction("b", {1: (1,)}, {2: 2}),
    ],
    "G-single": [A, Transaction("r", {1: (1,), 2: ()}), Transaction("s", {2: (1,)})],
    "G2": [
        Transaction("a", {1: (), 2: ()}, {1: 1}),
        Transaction("b", {1: (), 2: ()}, {2: 2}),
        Transaction("r", {1: (1,), 2: (2,)}),
    ],
    "half of a": [A, Transaction("r", {1: (1,), 2: ()}), Transaction("s", {2: (1,)})],
    "r read": [A, B, Transaction("r", {1: (2,)}), Transaction("s", {1: (1, 2)})],
    "key 1 has a value twice": [A, Transaction("r", {1: (1, 1)})],
}


@each("name, transactions", CASES.items())
def test_an_anomaly_is_found(name: str, transactions: list[Transaction]) -> None:
    found = list(anomalies(transactions))
    assert bool(found) == bool(name)
    assert any(text.startswith(name) for text in found) or not name
    halves = list(anomalies(transactions, serial=False))
    assert halves == [text for text in found if not text.startswith(("G-single", "G2"))]
