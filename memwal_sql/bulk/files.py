"""The files in which tasks have staged small pieces, many in each."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from exec_nodes.base.tasks import map_in_threads
from exec_nodes.base.thresholds import Thresholds
from memwal_sql.bulk.stage import StagedPiece
from memwal_sql.errors import NotFoundError
from memwal_sql.storage.objects.protocol import ObjectStore

_PARALLEL = 8


class KeptFiles(Thresholds):
    """The bytes of the files of one batch that are kept until it is published; where they have
    more, each piece is read on its own."""

    nbytes = 128 << 20


class SmallPieces:
    """Reads small pieces: each file once, so that requests do not grow with the regions."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._kept: dict[str, bytes] = {}

    def keep(self, pieces: Iterable[StagedPiece]) -> None:
        """Read the files of these pieces now, if they may be kept. A missing one is left out."""
        ends: dict[str, int] = {}
        for piece in pieces:
            if piece.path is not None:
                ends[piece.path] = max(piece.end, ends.get(piece.path, 0))
        if sum(ends.values()) <= KeptFiles.nbytes:
            map_in_threads(self._keep, list(ends), _PARALLEL)

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        return path in self._kept or self._store.exists(path)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        """The bytes of a piece. Raises NotFoundError without the file."""
        whole = self._kept.get(path)
        return self._store.get_range(path, start, end) if whole is None else whole[start:end]

    def _keep(self, path: str) -> None:
        with suppress(NotFoundError):
            self._kept[path] = self._store.get(path)
