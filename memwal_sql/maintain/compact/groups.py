"""Groups of fragments of the base table that are rewritten together.

A merge adds a fragment and leaves deleted rows in others. As in any log-structured tree, adjacent
fragments are joined as soon as some of them together have twice the size of the largest one. So
each time that a row is rewritten its fragment has at least doubled, and few fragments are left: as
many as there are doublings up to a full one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

# A fragment with so many rows or bytes is large enough. Lance's default is as many rows.
TARGET_ROWS = 1024 * 1024
TARGET_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fragment:
    """A fragment of the base table.

    Attributes:
        number: its id.
        rows: with deleted ones.
        deleted: how many of these are deleted.
        bytes: the size of its files, as far as that is known.
        indexed: the segments of indexes that cover it. Fragments of other segments can't be joined
            to it.
    """

    number: int
    rows: int
    deleted: int = 0
    bytes: int = 0
    indexed: Hashable = frozenset()

    @property
    def size(self) -> float:
        """Its size without deleted rows; 1 is large enough."""
        live = max(1, self.rows - self.deleted)
        live_bytes = live / max(1, self.rows) * self.bytes
        return max(live / TARGET_ROWS, live_bytes / TARGET_BYTES)

    def has_lost(self, share: float) -> bool:
        return self.deleted > 0 and self.deleted >= share * self.rows


class _Piece:
    """Fragments that become one."""

    def __init__(self, members: Sequence[Fragment]) -> None:
        self.members = tuple(members)
        self.size = sum(member.size for member in members)


def groups_of(
    fragments: Iterable[Fragment], least: int | None, share: float
) -> list[tuple[Fragment, ...]]:
    """The groups of fragments, given in ascending order, that become a fragment each.

    Args:
        least: join so many that have twice the size of the largest one among them; None: join all
            that are not large enough.
        share: rewrite fragments that have lost such a share of their rows. Given `least`, that
            waits until the table as a whole has, as what is written then is a multiple of what was
            deleted at most.
    """
    all_fragments = list(fragments)
    rows, deleted = (
        sum(getattr(fragment, name) for fragment in all_fragments) for name in ("rows", "deleted")
    )
    is_due = least is None or deleted >= share * rows
    lost = {fragment for fragment in all_fragments if is_due and fragment.has_lost(share)}
    groups: list[tuple[Fragment, ...]] = []
    for _, run in groupby(all_fragments, key=lambda fragment: fragment.indexed):
        pieces = [_Piece([fragment]) for fragment in run]
        if least is None:
            pieces = _joined(pieces, lambda piece: piece.size < 1 or lost.issuperset(piece.members))
        else:
            pieces = _joined(_doubled(pieces, least), lambda piece: lost.issuperset(piece.members))
        groups += [
            piece.members for piece in pieces if piece.members[1:] or piece.members[0] in lost
        ]
    return groups


def _doubled(pieces: list[_Piece], least: int) -> list[_Piece]:
    """Join the pieces that may be joined, the smallest first."""
    limit = min((piece.size for piece in pieces), default=1.0)
    while limit < 1:
        limit *= 2
        joined: list[_Piece] = []
        for is_small, run in groupby(pieces, key=lambda piece: piece.size <= min(limit, 1)):
            own = list(run)
            doubles = sum(piece.size for piece in own) >= 2 * max(piece.size for piece in own)
            joined += _cut(own) if is_small and doubles and len(own) >= least else own
        pieces = joined
    return pieces


def _joined(pieces: Sequence[_Piece], is_joined: Callable[[_Piece], bool]) -> list[_Piece]:
    """Join neighbouring pieces that `is_joined` selects."""
    joined_pieces: list[_Piece] = []
    for joined, run in groupby(pieces, key=is_joined):
        own = list(run)
        joined_pieces += _cut(own) if joined else own
    return joined_pieces


def _cut(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Join pieces into large enough ones, and one of the rest."""
    whole_pieces: list[_Piece] = []
    members: list[Fragment] = []
    size = 0.0
    for piece in pieces:
        members += piece.members
        size += piece.size
        if size >= 1:
            whole_pieces.append(_Piece(members))
            members, size = [], 0.0
    return [*whole_pieces, _Piece(members)] if members else whole_pieces
