"""What DELETE and UPDATE make of rows: each as a statement or a writer's call, and as a function of
a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.model.kinds import KeyKind
from tests.model.oracle import Row, Rows
from tests.model.predicates import any_predicate, compare_val


@dataclass(frozen=True)
class Change:
    """What a statement does to a row.

    Attributes:
        sql: the statement, which may read the tables `due` and `given`; empty for what a writer's
            method alone does.
        call: the same by a method of a writer, with its result; None where none can say it.
        row: the row that becomes of the one of a key; None if it is deleted, the same one if
            the statement leaves it alone.
        inserted: the rows of keys that have none.
        replaces_all: whether no row is left that is not written anew.
        count: how many rows it counts, where these are not those that it changes.
        returns: whether it may have RETURNING.
    """

    sql: str
    row: Callable[[int, Row], Row | None]
    call: Callable[[Any], Any] | None = None
    inserted: Rows = field(default_factory=dict)
    replaces_all: bool = False
    count: int | None = None
    returns: bool = True

    def after(self, n: int, row: Row | None) -> Row | None:
        """What becomes of the row of a key, or of its having none."""
        return self.inserted.get(n) if row is None else self.row(n, row)

    def of(self, rows: Rows) -> dict[int, Row | None]:
        """What becomes of the rows that are changed, and of keys that get one."""
        found = {n: self.after(n, rows.get(n)) for n in {*rows, *self.inserted}}
        return {n: row for n, row in found.items() if row is not rows.get(n)}

    def counted(self, rows: Rows) -> int:
        """How many rows it says that it changed."""
        return len(self.returned(rows)) if self.count is None else self.count

    def actions(self, rows: Rows) -> dict[int, str]:
        """What MERGE says that it did."""
        return {
            n: "INSERT" if n not in rows else "DELETE" if row is None else "UPDATE"
            for n, row in self.of(rows).items()
        }

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
    is_large = compare_val(">", rng.randint(-5, 8))
    exists = f"EXISTS (SELECT 1 FROM due AS d WHERE {same} AND d.val > 0)"
    is_due = {n for n, row in due.items() if (row.val or 0) > 0}
    return [
        Change(
            f"UPDATE t SET {text} WHERE {predicate.sql}",
            lambda n, row: new(row)._replace(op=op) if predicate(n, row) else row,
            lambda writer: writer.update(assigned, where=predicate.sql),
        ),
        Change(
            f"DELETE FROM t WHERE {predicate.sql}",
            lambda n, row: None if predicate(n, row) else row,
            lambda writer: writer.delete_where(predicate.sql),
        ),
        Change(
            "",
            lambda n, row: None if n in due and is_large(n, row) else row,
            lambda writer: writer.delete(kind.table(due), when=f"t.{is_large.sql}"),
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
