"""Random DELETE, UPDATE and MERGE statements, which Spark, DuckDB and `mw.sql` run alike.

The table `t` has the key `tenant`, `id`, and the columns `n` and `name`; `s` has the same columns.
"""

from __future__ import annotations

from random import Random

ON_KEY = "t.tenant = s.tenant AND t.id = s.id"
# Each key once, and so at most one row of the source for each of the table's.
SOURCE = "(SELECT tenant, id, n, name FROM s)"
BY_ID = "(SELECT 'a' AS tenant, id, max(n) AS n, max(name) AS name FROM s GROUP BY id)"


class Changes:
    """Statements that follow from a seed."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def statement(self) -> str:
        """One of them."""
        kind = self._random.random()
        if kind < 0.2:
            return f"DELETE FROM t WHERE {self._condition()}"
        if kind < 0.45:
            changed = self._random.choice([self._values("t.n"), self._key()])
            return f"UPDATE t SET {changed} WHERE {self._condition()}"
        return self._merge()

    def _condition(self) -> str:
        number = self._random.randrange(10)
        return self._random.choice(
            [
                f"id = {number}",
                f"t.id % 3 = {number % 3}",
                f"n > {number} OR name = 'b'",
                "upper(name) = 'C'",
                "n IS NULL",
                f"id IN (SELECT id FROM s WHERE n < {number})",
                "id NOT IN (SELECT id FROM s)",
                "EXISTS (SELECT 1 FROM s WHERE s.id = t.id AND s.n < t.n)",
                f"n <= (SELECT max(n) FROM s WHERE id < {number})",
                f"tenant = 'a' AND n + id < {2 * number}",
            ]
        )

    def _values(self, n: str) -> str:
        return self._random.choice(
            [
                f"n = {n} + 1",
                "n = NULL, name = 'y'",
                "name = t.name || t.tenant",
                f"n = CASE WHEN t.id < 5 THEN {n} ELSE 7 END, name = t.tenant",
            ]
        )

    def _key(self) -> str:
        return self._random.choice(
            ["id = t.id + 1", "id = 5 - t.id", "tenant = 'c'", "id = 3", "id = t.id + 20, n = 1"]
        )

    def _merge(self) -> str:
        random = self._random
        using, on = random.choice(
            [
                (SOURCE, ON_KEY),
                (SOURCE, ON_KEY),
                (SOURCE, f"{ON_KEY} AND t.n < 7"),
                (BY_ID, "t.id = s.id"),
                (SOURCE, "t.tenant = s.tenant AND t.id = s.id + 1"),
            ]
        )
        clauses = [
            *self._some([self._matched(), self._matched()], last="WHEN MATCHED"),
            *self._some([self._new(), self._new()], last="WHEN NOT MATCHED"),
            *self._some([self._only_there()], last="WHEN NOT MATCHED BY SOURCE"),
        ] or [f"WHEN MATCHED THEN UPDATE SET {self._values('s.n')}"]
        return f"MERGE INTO t USING {using} AS s ON {on} {' '.join(clauses)}"

    def _some(self, clauses: list[str], last: str) -> list[str]:
        """Some of the clauses; only the last one may be without a condition."""
        made = clauses[: self._random.randrange(len(clauses) + 1)]
        return [
            f"{last} AND {condition} THEN {action}"
            if condition or place < len(made) - 1
            else f"{last} THEN {action}"
            for place, (condition, _, action) in enumerate(
                clause.partition(" -> ") for clause in made
            )
            if condition or place == len(made) - 1
        ]

    def _matched(self) -> str:
        condition = self._random.choice(["", "t.n < s.n", "s.name = 'b'", "t.id > 4 AND s.n > 2"])
        updates = [f"UPDATE SET {self._values('s.n')}", f"UPDATE SET {self._key()}"]
        return f"{condition} -> {self._random.choice(['DELETE', updates[0], *updates])}"

    def _new(self) -> str:
        condition = self._random.choice(["", "s.n > 3", "s.name IS NULL"])
        values = self._random.choice(
            [
                "(tenant, id, n, name) VALUES (s.tenant, s.id, s.n, s.name)",
                "(id, tenant) VALUES (s.id, s.tenant)",
                "(tenant, id, name) VALUES ('n', s.id + 30, s.name)",
            ]
        )
        return f"{condition} -> INSERT {values}"

    def _only_there(self) -> str:
        condition = self._random.choice(["", "t.n > 4", "t.tenant = 'b'"])
        return f"{condition} -> {self._random.choice(['DELETE', 'UPDATE SET n = t.n + 100'])}"
