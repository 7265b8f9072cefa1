"""Which of the rows with one key stays, where several pieces of a region have it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import Mask
from exec_nodes.base.tasks import map_in_threads
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.codes import KeyCodes, concat
from exec_nodes.keys.keys import key_column
from memwal_sql.bulk.key_runs import short_hashes, spans_of
from memwal_sql.bulk.rows import LAST_OF_TASK, ORDER, same_key
from memwal_sql.write.ingest.missing import ERROR

_PARALLEL = 8  # pieces


@dataclass(frozen=True, slots=True)
class PieceKeys:
    """The keys of a piece, every one once, with `_order` last where rows are ordered."""

    task: int
    table: pa.Table


class KeyLimits(Thresholds):
    """The keys of a region that are compared at once. With all that finds equal ones, and in
    several regions at once, they take some 60 bytes each beside their own."""

    keys = 1 << 20


@dataclass(frozen=True, slots=True)
class UnreadPiece:
    """The task and the number of rows of a piece, and what reads its keys, as `PieceKeys` has
    them."""

    task: int
    rows: int
    read: Callable[[], pa.Table]


def newest_rows(
    pieces: Sequence[UnreadPiece], primary_key: Sequence[str], duplicates: str
) -> list[Mask]:
    """One mask a piece, true for the rows that stay. Many keys are compared some at a time, by
    their hashes. Raises what `winners` does."""
    masks = [np.ones(piece.rows, np.bool_) for piece in pieces]
    parts = -(-sum(piece.rows for piece in pieces) // KeyLimits.keys)
    for span in spans_of(parts):
        read = partial(_keys_within, span if parts > 1 else None, primary_key)
        keys = map_in_threads(read, pieces, _PARALLEL)
        stay = winners([some for some, _ in keys], primary_key, duplicates)
        for mask, (_, places), stays in zip(masks, keys, stay or (), strict=False):
            mask[places] = stays
    return masks


def _keys_within(
    span: tuple[int, int] | None, primary_key: Sequence[str], piece: UnreadPiece
) -> tuple[PieceKeys, npt.NDArray[np.int64] | slice]:
    """The keys of a piece whose hashes lie in a span, and their places."""
    table = piece.read()
    if span is None:
        return PieceKeys(piece.task, table), slice(None)
    hashes = short_hashes(table.select(primary_key).columns)
    places = np.flatnonzero((hashes >= span[0]) & (hashes < span[1]))
    return PieceKeys(piece.task, table.take(pa.array(places))), places


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
