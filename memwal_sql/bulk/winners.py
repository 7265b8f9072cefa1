"""Which of the rows with one key stays, where several pieces of a region have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import Mask
from exec_nodes.keys.codes import KeyCodes, concat
from exec_nodes.keys.keys import key_column
from memwal_sql.bulk.rows import LAST_OF_TASK, ORDER, same_key
from memwal_sql.write.ingest.missing import ERROR


@dataclass(frozen=True, slots=True)
class PieceKeys:
    """The keys of a piece, every one once, with `_order` last where rows are ordered."""

    task: int
    table: pa.Table


def winners(
    pieces: Sequence[PieceKeys], primary_key: Sequence[str], duplicates: str
) -> list[Mask] | None:
    """One mask a piece, true for the rows that stay; None when all do.

    Of rows of one task that nothing orders the last one stays, if `duplicates` says so. Raises
    InvalidCallError, naming a key, when two rows have it and nothing says which one is newer.
    """
    keys = concat([key_column(piece.table.select(primary_key).columns) for piece in pieces])
    numbers = KeyCodes(keys)
    codes = numbers.codes
    if not (np.bincount(codes, minlength=1) > 1).any():
        return None
    lengths = [piece.table.num_rows for piece in pieces]
    tasks = np.repeat([piece.task for piece in pieces], lengths)
    ordered = ORDER in pieces[0].table.column_names
    rows = np.arange(len(codes))
    if ordered:
        order = pa.chunked_array([chunk for piece in pieces for chunk in piece.table[ORDER].chunks])
        ranks = pc.rank(order, tiebreaker="dense").to_numpy().astype(np.int64)
        best = np.zeros(numbers.size, np.int64)
        np.maximum.at(best, codes, ranks)
        rows = np.flatnonzero(ranks == best[codes])
    last = np.empty(numbers.size, np.int64)
    last[codes[rows]] = rows  # of equal codes the last assignment stays
    newer = last[codes[rows]]
    for again, what, more in (
        (tasks[newer] != tasks[rows], "two tasks have a row", ""),
        ((newer != rows) & (duplicates == ERROR), "a task has several rows", LAST_OF_TASK),
    ):
        if again.any():
            table = pa.concat_tables([piece.table.select(primary_key) for piece in pieces])
            key = table.slice(int(rows[again][0]), 1).to_pylist()[0]
            raise same_key(what, key, ordered, more)
    kept = last[codes] == np.arange(len(codes))
    return list(np.split(kept, np.cumsum(lengths)[:-1]))
