"""Which of the rows that several tasks staged for one region are the newest of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import Mask
from exec_nodes.keys.codes import KeyCodes, concat
from exec_nodes.keys.keys import key_column
from memwal_sql.bulk.rows import ORDER
from memwal_sql.errors import InvalidCallError


@dataclass(frozen=True, slots=True)
class PieceKeys:
    """The keys of a piece, every one once, with `_order` last where rows are ordered."""

    task: int
    table: pa.Table


def winners(pieces: Sequence[PieceKeys], primary_key: Sequence[str]) -> list[Mask] | None:
    """One mask a piece, true for the rows that stay; None when all do.

    Of one task's pieces the later one is newer, unless rows are ordered. Raises InvalidCallError,
    naming a key, when two tasks have it and nothing says which row is newer.
    """
    if len(pieces) < 2:
        return None
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
    contested = rows[tasks[last[codes[rows]]] != tasks[rows]]
    if len(contested):
        raise _contested(pieces, primary_key, int(contested[0]), ordered)
    kept = last[codes] == np.arange(len(codes))
    return list(np.split(kept, np.cumsum(lengths)[:-1]))


def _contested(
    pieces: Sequence[PieceKeys], primary_key: Sequence[str], row: int, ordered: bool
) -> InvalidCallError:
    table = pa.concat_tables([piece.table.select(primary_key) for piece in pieces])
    key = table.slice(row, 1).to_pylist()[0]
    if ordered:
        return InvalidCallError(
            f"two tasks have a row of the key {key} with the same value in the orderBy column: "
            "order by a column that tells which one is newer"
        )
    return InvalidCallError(
        f"two tasks have a row of the key {key}, and nothing says which one is newer: name a "
        'column that does with option("orderBy", ...), or drop duplicates first'
    )
