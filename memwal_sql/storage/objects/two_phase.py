"""Put-if-absent for stores that have none, in two phases (specification 4, "Two Phase CAS").

An object is written beside its name first, then the commit log decides whether the name was free,
and only then the bytes are copied to it:

1. put the bytes at `{path}.{uuid}.{checksum}`;
2. record in the log, if nothing is recorded: that object is to become `path` (prepared);
3. copy it to `path`;
4. mark the record as committed;
5. delete the first object.

A delete marks the record as deleting, deletes the object, then removes the record. Whoever finds
a record that is not committed finishes what it says before anything else, so it does not matter
where its author stopped. A copy that comes late, after the object was deleted, takes itself back.

Names are not used again for other bytes once they were deleted; positions, versions and epochs
only grow (protocol rule 8), so the writers of this package never do.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from threading import Lock
from uuid import uuid4

from memwal_sql.errors import (
    CorruptFileError,
    NotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from memwal_sql.storage.objects.commit_log import Commit, CommitLog, CommitState
from memwal_sql.storage.objects.protocol import (
    Content,
    Metas,
    Names,
    ObjectEnd,
    ObjectMeta,
    ObjectStore,
)

_TEMPORARY = re.compile(r"(.+)\.[0-9a-f]{32}\.([0-9a-f]{8})")


class TwoPhaseStore:
    """The objects of `inner`, of which those made by `put_if_absent` are recorded in `log`.

    Every writer of the table has to use the same log. Nothing but `put`, `get`, `list` and
    `delete` is asked of `inner`.
    """

    service = None

    def __init__(self, inner: ObjectStore, log: CommitLog) -> None:
        self._inner = inner
        self._log = log
        self._recovered = False
        self._lock = Lock()

    @property
    def uri(self) -> str:
        return self._inner.uri

    @property
    def remote(self) -> bool:
        return self._inner.remote

    def __repr__(self) -> str:
        return f"TwoPhaseStore({self._inner!r}, {self._log!r})"

    def get(self, path: str) -> bytes:
        return self._inner.get(path)

    def get_tail(self, path: str, length: int) -> ObjectEnd:
        return self._inner.get_tail(path, length)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self._inner.get_range(path, start, end)

    def put(self, path: str, data: Content) -> None:
        """Write or replace, in one step: hints decide nothing."""
        self._inner.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._recover_once()
        decided = self._decided(path)
        if decided is not None or self._inner.exists(path):
            return False
        source = f"{path}.{uuid4().hex}.{zlib.crc32(data):08x}"
        self._inner.put(source, data)
        self._inner.sync(source)
        commit = Commit(path, source, CommitState.PREPARED)
        while not self._log.swap(path, None, commit):
            if self._decided(path) is not None:
                self._inner.delete([source])
                return False
        try:
            copied = self._copy(commit, data)
        except StoreUnavailableError as error:
            # It is decided, and whoever comes next finishes it.
            raise OutcomeUnknownError(f"{path} is recorded, but not put yet: {error}") from error
        if not copied:
            raise OutcomeUnknownError(f"{path} was removed, or never was, while it was put")
        return True

    def sync(self, folder: str) -> None:
        self._inner.sync(folder)

    def refuse_links(self, folders: Sequence[str] = ()) -> None:
        self._inner.refuse_links(folders)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def stamp(self, path: str) -> Hashable | None:
        return self._inner.stamp(path)

    def list(self, prefix: str) -> list[ObjectMeta]:
        """All objects below the folder `prefix`, without those on their way to their names."""
        return [meta for meta in self._inner.list(prefix) if not _TEMPORARY.fullmatch(meta.path)]

    def list_folders(self, prefix: str) -> Names:
        return self._inner.list_folders(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects in the order given, each in two phases if it was put in two."""
        self._recover_once()
        for path in paths:
            decided = self._decided(path)
            if decided is None:
                self._inner.delete([path])
            else:
                self._delete(decided)

    def delete_in_bulk(self, paths: Iterable[str]) -> None:
        """Delete objects in any order; at once those that nothing is recorded of."""
        self._recover_once()
        plain = []
        for path in paths:
            if (decided := self._decided(path)) is None:
                plain.append(path)
            else:
                self._delete(decided)
        self._inner.delete_in_bulk(plain)

    def move(self, source: str, target: str) -> None:
        """Moved as by the inner store: staged files decide nothing."""
        self._inner.move(source, target)

    def leftovers(self, prefix: str) -> Metas:
        """Leftovers of puts whose process died before anything was recorded."""
        sources = {commit.source for commit in self._log.unfinished()}
        temporary = (m for m in self._inner.list(prefix) if _TEMPORARY.fullmatch(m.path))
        unwanted = [meta for meta in temporary if meta.path not in sources]
        return [*self._inner.leftovers(prefix), *unwanted]

    def recover(self) -> int:
        """Finish every put and delete that somebody began and did not finish; how many there were.

        Safe at any time and for any number of processes: those still under way are helped along.
        """
        unfinished = self._log.unfinished()
        for commit in unfinished:
            self._finish(commit)
        return len(unfinished)

    def _recover_once(self) -> None:
        with self._lock:
            if not self._recovered:
                self.recover()
                self._recovered = True

    def _decided(self, path: str) -> Commit | None:
        """The committed record of a path, after finishing what is unfinished; None: the name is
        free, or was never recorded."""
        while (decided := self._log.read(path)) is not None:
            if decided.state is not CommitState.COMMITTED:
                self._finish(decided)
            elif self._inner.exists(path):
                return decided
            else:
                # Removed past the log, with the whole table as a rule: the name is free again.
                self._log.swap(path, decided, None)
        return None

    def _finish(self, commit: Commit) -> None:
        if commit.state is CommitState.DELETING:
            self._finish_delete(commit)
        else:
            self._finish_put(commit)

    def _finish_put(self, commit: Commit) -> None:
        try:
            data = self._inner.get(commit.source)
        except NotFoundError:
            # Somebody has finished it, or removed what was to be copied: then it never was.
            self._log.swap(commit.path, commit, None)
            return
        _check(commit.source, data)
        self._copy(commit, data)

    def _copy(self, commit: Commit, data: bytes) -> bool:
        """Steps 3 to 5; whether the object is known to have been there."""
        self._inner.put(commit.path, data)
        self._inner.sync(commit.path)
        committed = replace(commit, state=CommitState.COMMITTED)
        is_recorded = True
        if not self._log.swap(commit.path, commit, committed):
            now = self._log.read(commit.path)
            is_recorded = now is not None
            if now is None or now.state is CommitState.DELETING:
                # Finished by somebody else and deleted since: this copy came too late.
                self._inner.delete([commit.path])
        self._inner.delete([commit.source])
        return is_recorded

    def _delete(self, commit: Commit) -> None:
        deleting = replace(commit, state=CommitState.DELETING)
        if not self._log.swap(commit.path, commit, deleting):
            now = self._log.read(commit.path)
            if now is None:
                return  # somebody else deleted it
            if now != deleting:
                raise OutcomeUnknownError(f"{commit.path} changed while it was deleted: try again")
        self._finish_delete(deleting)

    def _finish_delete(self, commit: Commit) -> None:
        self._inner.delete([commit.source, commit.path])
        self._log.swap(commit.path, commit, None)


def _check(source: str, data: bytes) -> None:
    name_parts = _TEMPORARY.fullmatch(source)
    if name_parts is None or f"{zlib.crc32(data):08x}" != name_parts[2]:
        raise CorruptFileError(f"{source} does not have the checksum in its name")
