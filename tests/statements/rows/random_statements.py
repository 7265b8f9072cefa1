"""Random queries and changes of rows, over tables that DuckDB and SQLite have too.

The names: `t` is the changed table and `u` another one, each with the columns `id` and `v`; `p` is
no table of this package; `w` is a view of `t`, and `c` a query in WITH.
"""

from __future__ import annotations

import re
from random import Random

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
_NAMES_C = re.compile(r"\b(FROM|JOIN) c\b")
_WITH = "WITH c AS (SELECT id, v FROM t WHERE id < 6) "


class Statements:
    """Statements that follow from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def _one_of(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _column(self, name: str) -> str:
        return self._one_of("id", "v", f"{name}.v", f"{name}.id")

    def _operand(self, name: str) -> str:
        """A column, or an expression that some planners take for the column."""
        column = self._column(name)
        if self._chance(0.85):
            return column
        return self._one_of(f"({column})", f"+{column}", f"{column} + 0", f"+({column})")

    def _from(self) -> tuple[str, str]:
        """A FROM, and the name of its columns."""
        table = self._one_of("t", "t", "t", "u", "u", "u", "p", "w", "c")
        alias = self._one_of("a", "b", "t", "u")
        return (f"{table} AS {alias}", alias) if self._chance(0.4) else (table, table)

    def query(self, depth: int) -> str:
        """A query of one column."""
        kind = self._random.random()
        if kind < 0.15:
            operation = self._one_of("UNION", "UNION ALL", "EXCEPT", "INTERSECT")
            if self._chance(0.02):
                operation = self._one_of("EXCEPT ALL", "INTERSECT ALL")
            made = f"{self._plain(depth)} {operation} {self._plain(depth)}"
            return f"SELECT q.x FROM ({made}) AS q(x)"
        if kind < 0.35:
            return self._joined()
        if kind < 0.42:
            return f"{self._plain(depth)} ORDER BY 1 NULLS LAST {self._limit()}"
        return self._plain(depth)

    def _limit(self) -> str:
        return self._one_of("LIMIT 1", "LIMIT 3", "LIMIT 2 OFFSET 1", "LIMIT 0")

    def _compared(self, depth: int) -> str:
        """A query after ANY or ALL."""
        if self._chance(0.85):
            return self.query(depth)
        table, name = self._from()
        made = self._one_of("max", "min", "sum", "count")
        where = self._one_of("", f" WHERE {self._simple(name, named=True)}")
        group = self._one_of("", "", f" GROUP BY {name}.id")
        return f"SELECT {made}({name}.v) FROM {table}{where}{group}"

    def _joined(self) -> str:
        join = self._one_of("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        left, right = self._one_of("t", "w", "u"), self._one_of("u", "p", "t", "c")
        columns = ["a.id", "b.id", "a.v", "b.v", "coalesce(a.id, b.id)"]
        kind = self._random.random()
        if kind < 0.5:
            on = self._one_of("ON a.id = b.id", "ON a.v = b.v", "ON a.id = b.v", "ON a.id < b.v")
        elif kind < 0.8:
            on = "USING (id)"
        else:
            join, on = f"NATURAL {join}", ""
        if not on.startswith("ON") and (join.endswith(("T JOIN", "L JOIN")) or self._chance(0.5)):
            if join in ("JOIN", "LEFT JOIN", "NATURAL JOIN", "NATURAL LEFT JOIN"):
                columns.append("id")
            elif self._chance(0.08):  # refused
                columns = ["id"]
        column, third = self._random.choice(columns), ""
        if on.startswith("ON") and self._chance(0.4):
            third = f" {self._one_of('JOIN', 'LEFT JOIN')} {self._one_of('t', 'u', 'p', 'w')} AS d "
            third += self._one_of("ON d.id = a.id", "ON d.id = b.v", "ON d.v < b.id")
            column = self._one_of(column, "d.id", "d.v")
        where = self._one_of("", f" WHERE {self._simple('a', named=True)}")
        return f"SELECT {column} FROM {left} AS a {join} {right} AS b {on}{third}{where}"

    def _plain(self, depth: int) -> str:
        table, name = self._from()
        column = self._operand(name) if self._chance(0.3) else self._column(name)
        where = self.condition(name, depth - 1) if self._chance(0.7) else "true"
        return f"SELECT {self._one_of('', 'DISTINCT ')}{column} FROM {table} WHERE {where}"

    def _simple(self, name: str, *, named: bool = False) -> str:
        column = self._one_of(f"{name}.v", f"{name}.id") if named else self._operand(name)
        number = self._random.randrange(6)
        return self._one_of(
            f"{column} {self._random.choice(OPERATORS)} {number}",
            f"{column} {self._random.choice(OPERATORS)} {number}",
            f"{column} IS NULL",
            f"{column} IS NOT NULL",
            f"{column} IN ({number}, {number + 2})",
        )

    def condition(self, name: str, depth: int) -> str:
        """A condition of a query over a table of this name."""
        kind = self._random.random() if depth > 0 else 1.0
        column = self._operand(name)
        if kind < 0.25:
            word = self._one_of("ANY", "SOME", "ALL")
            operator = self._random.choice(OPERATORS)
            return f"{column} {operator} {word} ({self._compared(depth)})"
        if kind < 0.4:
            return f"{column} IN ({self.query(depth)})"
        if kind < 0.47:
            return f"{name}.{self._one_of('id', 'v')} NOT IN ({self.query(depth)})"
        if kind < 0.53:
            return self._value(f"{column} = ANY ({self._compared(depth)})")
        if kind < 0.54:  # often refused
            return self._value(f"{column} IN ({self.query(depth)})")
        if kind < 0.62:
            table, inner = self._from()
            inside = self.condition(inner, depth - 1)
            if inner != name and self._chance(0.6):
                inside = f"{inner}.id {self._random.choice(OPERATORS)} {name}.v AND ({inside})"
            limit = f" {self._limit()}" if self._chance(0.05) else ""
            made = f"SELECT 1 FROM {table} WHERE {inside}{limit}"
            return f"{self._one_of('', 'NOT ')}EXISTS ({made})"
        if kind < 0.68:
            table, inner = self._from()
            operator = self._random.choice(OPERATORS)
            made = self._one_of("max", "min", "sum", "count")
            return f"{column} {operator} (SELECT {made}({inner}.v) FROM {table})"
        if kind < 0.8:
            word = self._one_of("AND", "OR")
            left, right = self.condition(name, depth - 1), self.condition(name, depth - 1)
            return f"({left}) {word} ({right})"
        return self._simple(name)

    def _value(self, membership: str) -> str:
        return self._one_of(
            f"coalesce({membership}, true)",
            f"({membership}) IS NULL",
            f"CASE WHEN {membership} THEN false ELSE true END",
            f"NOT ({membership})",
        )

    def select(self) -> str:
        """A query, as a whole statement."""
        return self._with(self.query(2))

    def change(self) -> str:
        """A statement that changes rows of `t`."""
        name = self._one_of("t", "t", "m")
        alias = "" if name == "t" else " AS m"
        condition = self.condition(name, 2)
        table, inner = self._random.choice([("u", "u"), ("t AS a", "a"), ("w", "w"), ("p", "p")])
        rows = f"SELECT DISTINCT {inner}.id FROM {table} WHERE {self.condition(inner, 2)}"
        one = f"SELECT max(v) FROM {self._one_of('t', 'u', 'w', 'p')}"
        where = f" WHERE {condition}" if self._chance(0.5) else ""
        return self._with(
            self._one_of(
                f"DELETE FROM t{alias} WHERE {condition}",
                f"DELETE FROM t{alias} WHERE {condition}",
                f"UPDATE t{alias} SET v = 7 WHERE {condition}",
                f"UPDATE t{alias} SET v = ({one}){where}",
                f"UPDATE t{alias} SET v = 8 FROM ({rows}) AS s WHERE s.id = {name}.id",
                f"DELETE FROM t{alias} USING ({rows}) AS s WHERE s.id = {name}.id",
                f"INSERT INTO t SELECT s.id + 10 AS id, 1 AS v FROM ({rows}) AS s WHERE s.id < 9",
                f"INSERT INTO t SELECT s.id, 9 AS v FROM ({rows}) AS s WHERE s.id IS NOT NULL "
                f"ON CONFLICT (id) DO {self._one_of('UPDATE SET v = excluded.v', 'NOTHING')}",
                f"MERGE INTO t{alias} USING ({rows}) AS s ON {name}.id = s.id "
                f"WHEN MATCHED THEN UPDATE SET v = 5 WHEN NOT MATCHED THEN INSERT (id, v) "
                f"VALUES (s.id, 6)",
                f"MERGE INTO t{alias} USING ({rows}) AS s ON {name}.id = s.id "
                f"WHEN NOT MATCHED BY SOURCE THEN {self._one_of('DELETE', 'UPDATE SET v = 3')}",
            )
        )

    @staticmethod
    def _with(statement: str) -> str:
        return _WITH + statement if _NAMES_C.search(statement) else statement
