"""What DELETE and UPDATE make of rows: each as a statement, and as a function of a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.model.kinds import KeyKind
from tests.model.oracle import Row, Rows
from tests.model.predicates import any_predicate


@dataclass(frozen=True)
class Change:
    """What a statement does to a row.

    Attributes:
        sql: the statement; it may read the tables `due` and `given`.
        where, set: the same for the writer's methods; None where these can't say it.
        row: the row that becomes of the one of a key; None if it is deleted, the same one if
            the statement leaves it alone.
        inserted: the rows of keys that have none.
        replaces_all: whether no row is left that is not written anew.
        count: how many rows it counts, where these are not those that it returns.
    """

    sql: str
    row: Callable[[int, Row], Row | None]
    where: str | None = None
    set: dict[str, str] | None = None

    inserted: Rows = field(default_factory=dict)
    replaces_all: bool = False
    count: int | None = None

    def after(self, n: int, row: Row | None) -> Row | None:
        """What becomes of the row of a key, or of its having none."""
        return self.inserted.get(n) if row is None else self.row(n, row)

    def of(self, rows: Rows) -> dict[int, Row | None]:
        """What becomes of the rows that are changed, and of keys that get one."""
        found = {n: self.after(n, rows.get(n)) for n in {*rows, *self.inserted}}
        return {n: row for n, row in found.items() if row is not rows.get(n)}

    def returned(self, rows: Rows) -> Rows:
        """What RETURNING says: rows as they were written, or as they were deleted."""
        found = ((n, row or rows[n], row is None) for n, row in self.of(rows).items())
        return {n: row for n, row, deleted in found if not (deleted and self.replaces_all)}


def changes(rng: Random, kind: KeyKind, keys: int, op: int, due: Rows) -> list[Change]:
    """DELETE and UPDATE by a condition, a subquery, and another table; `op` marks their rows."""
    add = rng.randint(1, 9)
    same = " AND ".join(f"d.{name} = t.{name}" for name in kind.names)
    sets: list[tuple[dict[str, str], Callable[[Row], Row]]] = [
        (
            {"val": f"coalesce(val, 0) + {add}"},
            lambda row: row._replace(val=(row.val or 0) + add),
        ),
        (
            {"txt": "txt || 'x'", "w": "w / 2"},
            lambda row: row._replace(
                txt=row.txt if row.txt is None else f"{row.txt}x", w=row.w / 2
            ),
        ),
        ({"tags": "NULL", "val": "NULL"}, lambda row: row._replace(tags=None, val=None)),
    ]
    assigned, new = rng.choice(sets)
    assigned = {**assigned, "op": str(op)}
    text = ", ".join(f"{name} = {value}" for name, value in assigned.items())
    predicate = any_predicate(rng, kind, keys)
    exists = f"EXISTS (SELECT 1 FROM due AS d WHERE {same} AND d.val > 0)"
    is_due = {n for n, row in due.items() if (row.val or 0) > 0}
    return [
        Change(
            f"UPDATE t SET {text} WHERE {predicate.sql}",
            lambda n, row: new(row)._replace(op=op) if predicate(n, row) else row,
            predicate.sql,
            assigned,
        ),
        Change(
            f"DELETE FROM t WHERE {predicate.sql}",
            lambda n, row: None if predicate(n, row) else row,
            predicate.sql,
        ),
        Change(
            f"UPDATE t SET {text} WHERE NOT {exists}",
            lambda n, row: row if n in is_due else new(row)._replace(op=op),
        ),
        Change(f"DELETE FROM t WHERE {exists}", lambda n, row: None if n in is_due else row),
        Change(
            f"UPDATE t SET val = d.val, txt = d.txt, op = {op} FROM due AS d WHERE {same}",
            lambda n, row: row._replace(val=due[n].val, txt=due[n].txt, op=op) if n in due else row,
        ),
        Change(
            f"DELETE FROM t USING due AS d WHERE {same}",
            lambda n, row: None if n in due else row,
        ),
    ]
