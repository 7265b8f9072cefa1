"""What INSERT, REPLACE, MERGE and streams of changes make of rows: each as a statement or a call of
a writer, and as a function of a row."""

from __future__ import annotations

from random import Random

import pyarrow as pa

from tests.histories.changes import Change
from tests.model.kinds import KeyKind
from tests.model.oracle import VALUE_NAMES, Row, Rows, table_of
from tests.model.predicates import any_predicate

Pairs = list[tuple[int, Row]]
_UPSERTS = ("upsert", "insert", "update", "c", "r", "u", "+I", "+U", "update_postimage")
_DELETES = ("delete", "d", "-D")
_BEFORE = ("-U", "update_preimage")


def _added(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def inserts(kind: KeyKind, op: int, given: Pairs) -> list[Change]:
    """INSERT and REPLACE of the rows of the tables `given`, where a key may have several, and
    `due`, which has the last of each; `op` marks rows of which they give some columns."""
    names = ", ".join(kind.names)
    last, first = dict(given), dict(reversed(given))
    some = {n: Row(row.val, None, row.w, None, op) for n, row in last.items()}
    texts = {n: Row(None, row.txt, row.w, None, op) for n, row in last.items()}
    return [
        Change(
            "INSERT INTO t SELECT * FROM given",
            lambda n, row: last.get(n, row),
            inserted=last,
        ),
        Change(
            f"INSERT INTO t ({names}, w, op, val) SELECT {names}, w, {op}, val FROM given",
            lambda n, row: row._replace(val=last[n].val, w=last[n].w, op=op) if n in last else row,
            inserted=some,
        ),
        Change(
            f"INSERT INTO t BY NAME SELECT txt, {op} AS op, {names}, w FROM given",
            lambda n, row: row._replace(txt=last[n].txt, w=last[n].w, op=op) if n in last else row,
            inserted=texts,
        ),
        Change(
            "INSERT INTO t SELECT * FROM given ON CONFLICT DO NOTHING",
            lambda n, row: row,
            inserted=first,
        ),
        Change(
            f"INSERT INTO t SELECT * FROM due ON CONFLICT ({names}) DO UPDATE SET "
            f"val = t.val + excluded.val, txt = excluded.txt, op = {op} WHERE t.w <= excluded.w",
            lambda n, row: (
                row._replace(val=_added(row.val, last[n].val), txt=last[n].txt, op=op)
                if n in last and row.w <= last[n].w
                else row
            ),
            inserted=last,
        ),
        Change(
            f"REPLACE INTO t ({names}, val, w, op) SELECT {names}, val, w, {op} FROM given",
            lambda n, row: some.get(n, row),
            inserted=some,
        ),
    ]


def streams(rng: Random, kind: KeyKind, given: Pairs) -> list[Change]:
    """A stream of changes in its order, of keys that may come several times."""
    words = [rng.choice(rng.choice((_UPSERTS, _UPSERTS, _DELETES, _BEFORE))) for _ in given]
    stream = [(n, row, word) for (n, row), word in zip(given, words, strict=True)]
    last = {n: None if word in _DELETES else row for n, row, word in stream if word not in _BEFORE}
    rows = table_of(kind, given).append_column("_op", pa.array(words))
    return [
        Change(
            "",
            lambda n, row: last.get(n, row),
            lambda writer: writer.apply(rows),
            inserted={n: row for n, row in last.items() if row is not None},
            count=sum(word not in _BEFORE for word in words),
        )
    ]


def merges(rng: Random, kind: KeyKind, keys: int, op: int, due: Rows) -> list[Change]:
    """MERGE of the rows of the table `due`; `op` marks rows that it computes."""
    into = "MERGE INTO t USING due AS d ON " + " AND ".join(
        f"t.{name} = d.{name}" for name in kind.names
    )
    columns = [*kind.names, "val", "w", "op"]
    values = [f"d.{name}" for name in columns[:-1]] + [str(op)]
    predicate = any_predicate(rng, kind, keys)

    def added(n: int, row: Row) -> Row | None:
        if n not in due:
            return row
        given = due[n]
        if given.val is not None and given.val > 4:
            return None
        return row._replace(val=_added(row.val, given.val), txt=given.txt, op=op)

    def replaced(n: int, row: Row) -> Row | None:
        if n in due:
            return Row(*due[n])
        if row.val is not None and row.val < 0:
            return None
        return row._replace(tags=None, w=row.w + 1, op=op) if predicate(n, row) else row

    return [
        Change(
            f"{into} WHEN MATCHED AND d.val > 4 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET val = t.val + d.val, txt = d.txt, op = {op} "
            "WHEN NOT MATCHED AND d.val IS NOT NULL THEN INSERT *",
            added,
            inserted={n: row for n, row in due.items() if row.val is not None},
        ),
        Change(
            f"{into} WHEN MATCHED THEN UPDATE SET * "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({', '.join(values)}) "
            "WHEN NOT MATCHED BY SOURCE AND t.val < 0 THEN DELETE "
            f"WHEN NOT MATCHED BY SOURCE AND ({predicate.sql}) THEN "
            f"UPDATE SET tags = NULL, w = w + 1, op = {op}",
            replaced,
            inserted={n: Row(row.val, None, row.w, None, op) for n, row in due.items()},
        ),
        Change(
            f"{into} WHEN MATCHED AND t.w > d.w THEN DO NOTHING WHEN MATCHED THEN DELETE "
            "WHEN NOT MATCHED THEN INSERT *",
            lambda n, row: None if n in due and row.w <= due[n].w else row,
            inserted=due,
        ),
    ]


def overwrites(rng: Random, kind: KeyKind, keys: int, op: int, given: Pairs) -> list[Change]:
    """TRUNCATE, and INSERT OVERWRITE by the rows of the table `given`, and by some of those that
    are there."""
    last = dict(given)
    predicate = any_predicate(rng, kind, keys)
    others = ", ".join(f"{op}" if name == "op" else name for name in VALUE_NAMES)
    columns = ", ".join([*kind.names, *VALUE_NAMES])
    return [
        Change("TRUNCATE TABLE t", lambda n, row: None, returns=False),
        Change(
            "INSERT OVERWRITE t SELECT * FROM given",
            lambda n, row: last.get(n),
            inserted=last,
            replaces_all=True,
        ),
        Change(
            f"INSERT OVERWRITE t ({columns}) SELECT {', '.join(kind.names)}, {others} FROM t "
            f"WHERE {predicate.sql}",
            lambda n, row: row._replace(op=op) if predicate(n, row) else None,
            replaces_all=True,
        ),
    ]
