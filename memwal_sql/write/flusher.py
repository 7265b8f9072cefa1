"""Flushing sealed MemTables of a region in the background (specification 2, "MemTable Flush").

Several generations may be written to storage at once; each becomes visible by one manifest commit,
and commits go in the order of generations (protocol rule 7). A failed write loses nothing: the rows
are in the WAL, and the next claim replays them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa

from memwal_sql.errors import (
    ContentionError,
    MemWalError,
    NotFoundError,
    ReopenError,
    RepairError,
    TableReplacedError,
    UnknownFormatError,
    WriterFailedError,
)
from memwal_sql.life_log import deferred_logs, life_log
from memwal_sql.state.batch_marks import latest_batches
from memwal_sql.state.memtable import MemTable
from memwal_sql.state.replay import ReplayedMemTable
from memwal_sql.storage.objects.concurrent import run_with
from memwal_sql.storage.records.intent import TransactionName
from memwal_sql.storage.region.manifest import (
    FlushedGeneration,
    RegionManifest,
    latest_transactions,
)
from memwal_sql.storage.region.progress import check_progress
from memwal_sql.storage.region.versions import ManifestChanges, RegionManifests
from memwal_sql.storage.retries import with_retries
from memwal_sql.telemetry import FLUSH_SECONDS, FLUSHED_ROWS, timed
from memwal_sql.write.claim import RegionClaim, fenced

_log = life_log(__name__)

T = TypeVar("T")
WriteGeneration = Callable[[UUID, int, pa.Table], FlushedGeneration]


@dataclass(slots=True)
class _Flush:
    replayed: ReplayedMemTable
    begun: bool = False
    written: FlushedGeneration | None = None


class RegionFlusher:
    """Writes and commits the sealed MemTables of one region.

    `write` writes a generation durably into a new folder at each call. `check` raises if the table
    must not be written any more: it is called for each generation, on a remote store beside the
    writing. The commit finds what it misses, as a program that shuts writers out claims every
    region after that. `merged` gives the last generation of the region in the base table. `submit`
    runs a call soon, on another thread: what `start` is given is called there, without any lock
    held; before it, `lost`, if the table is another one now.
    """

    def __init__(
        self,
        *,
        claim: RegionClaim,
        manifests: RegionManifests,
        write: WriteGeneration,
        submit: Callable[[Callable[[], None]], None],
        attempts: int,
        lost: Callable[[RepairError], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
        merged: Callable[[], int] = lambda: 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._claim = claim
        self._manifest = claim.manifest
        self._manifests = manifests
        self._write = write
        self._make_soon = submit
        self._attempts = attempts
        self._lost = lost
        self._check = check
        self._merged = merged
        self._sleep = sleep
        self._queue: deque[_Flush] = deque()
        self._committed_through = 0
        self._stopped = False
        self._lock = Lock()  # the queue
        self._commit_lock = Lock()  # one committer at a time, in order

    def start(
        self,
        committed: Callable[[MemTable], None],
        passed: Callable[[int], None],
        failed: Callable[[MemWalError], None],
    ) -> None:
        """Call these from now on: with each committed MemTable, with the position behind which
        replays begin, and with the error that ends all flushes."""
        self._committed, self._passed, self._failed = committed, passed, failed

    def submit(self, sealed: ReplayedMemTable) -> None:
        """Flush a MemTable that does not grow any more and whose entries have all landed. MemTables
        must come in the order of their generations. One that came before is not flushed again, so
        an interrupted caller may call again.

        The manifest names its staged batches and transactions from now on, as their entries may be
        collected."""
        memtable = sealed.memtable
        # Read without the lock, which an interrupt might leave locked: a commit advances the second
        # before it takes a flush out of the first.
        queued = any(flush.replayed.memtable is memtable for flush in tuple(self._queue))
        if not queued and memtable.generation > self._committed_through:
            self._queue.append(_Flush(replace(sealed)))
        self._make_soon(self._run)

    def pass_over(self, position: int) -> None:
        """Let replays begin behind a committed intent soon: nothing up to there is unflushed.

        Otherwise the log of a region that transactions only read would grow for ever, as a flush
        takes rows. Where it fails, the log is passed over later.
        """

        def run() -> None:
            with deferred_logs(by_thread=True):
                try:
                    with self._commit_lock:
                        self._manifest = commit_passed(
                            self._manifests, self._manifest, self._claim, position
                        )
                except MemWalError as error:
                    reason = type(error).__name__
                    _log.info("the log of region %s stays: %s", self._claim.region_id, reason)
                else:
                    self._passed(position)

        self._make_soon(run)

    def _run(self) -> None:
        """Do the next flush, if there is one."""
        with deferred_logs(by_thread=True):
            self._flush_next()

    def _flush_next(self) -> None:
        with self._lock:
            flush = next((flush for flush in tuple(self._queue) if not flush.begun), None)
            if flush is None:
                return
            flush.begun = True
        try:
            with timed(FLUSH_SECONDS, {"table": self._manifests.uri}):
                flush.written = self._write_and_check(flush.replayed.memtable)
            with self._commit_lock:
                while (ready := self._next_written()) is not None:
                    self._commit(*ready)
        except (ReopenError, TableReplacedError, UnknownFormatError) as error:
            self._stop(error)
        except BaseException as error:  # an executor would swallow it
            self._stop(
                WriterFailedError(
                    f"region {self._claim.region_id}: generation "
                    f"{flush.replayed.memtable.generation} could not be flushed; its rows are safe "
                    f"in the WAL, and a new writer replays them: {error}"
                ),
                error,
            )

    def _write_and_check(self, memtable: MemTable) -> FlushedGeneration:
        rows = memtable.newest_rows()
        return run_with(
            self._manifests.remote,
            lambda: self._persistent(lambda: self.write(memtable.generation, rows)),
            lambda: self._persistent(self._check),
        )

    def _persistent(self, call: Callable[[], T]) -> T:
        """Make a call again after errors that may pass, as often as the options say."""

        def flush() -> T:
            self._check_goes_on()
            return call()

        return with_retries(
            flush,
            f"a flush of region {self._claim.region_id}",
            on=Exception,
            unless=(ReopenError, RepairError, ContentionError),
            attempts=self._attempts,
            sleep=self._sleep,
        )

    def _check_goes_on(self) -> None:
        if self._stopped:
            raise WriterFailedError(
                f"region {self._claim.region_id}: flushing stopped after an earlier failure"
            )

    def _next_written(self) -> tuple[_Flush, FlushedGeneration] | None:
        with self._lock:
            if self._stopped or not self._queue or (first := self._queue[0]).written is None:
                return None
            return first, first.written

    @property
    def published(self) -> Mapping[str, int]:
        """The staged batches of the manifest, the last one of each query."""
        return self._manifest.published

    def write(self, generation: int, rows: pa.Table) -> FlushedGeneration:
        """Write rows as a generation that no manifest lists."""
        return self._write(self._claim.region_id, generation, rows)

    def add(self, written: Sequence[FlushedGeneration], published: Mapping[str, int]) -> None:
        """Add generations that hold these staged batches, after all that were submitted, and end
        the claim in the same commit. Raises as `commit_flush`."""
        with self._commit_lock:
            self._commit_all(written, published=published, ends_claim=True)

    def _commit(self, flush: _Flush, written: FlushedGeneration) -> None:
        replayed = flush.replayed
        self._commit_all(
            (written,),
            last_position=replayed.last_position,
            published=replayed.published,
            last_transaction=replayed.last_transaction,
            transactions=replayed.transactions,
        )
        with self._lock:
            self._committed_through = replayed.memtable.generation
            self._queue.popleft()
        self._committed(replayed.memtable)

    def _commit_all(self, written: Sequence[FlushedGeneration], **holds: Any) -> None:
        def commit() -> RegionManifest:
            return commit_flush(
                self._manifests,
                self._manifest,
                self._claim,
                written,
                check=self._check_goes_on,
                merged=self._merged(),
                **holds,
            )

        self._manifest = self._persistent(commit)

    def _stop(self, error: MemWalError, cause: BaseException | None = None) -> None:
        with self._lock:
            first = not self._stopped
            self._stopped = True
        if cause is not None:
            error.__cause__ = cause
        if first and isinstance(error, TableReplacedError):
            self._lost(error)  # before callers that wait for the flush are woken
        if first:
            self._failed(error)


def commit_passed(
    manifests: RegionManifests, manifest: RegionManifest, claim: RegionClaim, position: int
) -> RegionManifest:
    """Let replays begin behind the committed intent at a position: every entry up to there is
    flushed, or has no rows that count. `manifest` and errors as in `commit_flush`."""

    def advance(latest: RegionManifest) -> ManifestChanges:
        _check_epoch(latest, claim)
        if latest.replay_after_wal_entry_position >= position:
            return {}
        return {
            "replay_after_wal_entry_position": position,
            "wal_entry_position_last_seen": max(position, latest.wal_entry_position_last_seen),
            "last_transaction": position,
        }

    return manifests.change(manifest, advance)


def _check_epoch(latest: RegionManifest, claim: RegionClaim) -> None:
    if latest.writer_epoch != claim.epoch:
        raise fenced(claim.region_id, claim.epoch, latest.writer_epoch)


def commit_flush(
    manifests: RegionManifests,
    manifest: RegionManifest,
    claim: RegionClaim,
    flushed: Sequence[FlushedGeneration],
    *,
    last_position: int = 0,
    published: Mapping[str, int] | None = None,
    last_transaction: int = 0,
    transactions: Sequence[TransactionName] = (),
    ends_claim: bool = False,
    check: Callable[[], None] = lambda: None,
    merged: int = 0,
) -> RegionManifest:
    """Add consecutive generations to the region in one manifest commit (protocol rule 7).

    `manifest` is any earlier manifest, normally the newest: the writer's claim or last commit. It
    is not checked first. The put-if-absent of the next version decides, as another process that
    claimed or collected meanwhile has put that version: then its manifest is read, with the epoch
    in it. The one check of `manifest` that is needed comes after the put (protocol rule 8).

    `last_position` is the position of the last WAL entry whose rows they hold, 0 for rows that were
    never in the WAL; `published` are the staged batches that they hold; `last_transaction` is the
    position of their last committed intent, and `transactions` are those that they have rows of;
    with `ends_claim` the epoch rises too, which shows rows that are in no log to who compares the
    end of the log and the epoch; `merged` is the last generation of the region in a base version.
    Raises FencedError when the claim is lost, TableReplacedError when the region is gone or the
    first of them is merged there, and RepairError when the region's current generation is not the
    first of them; calling again after another error, such as OutcomeUnknownError, is safe.
    """
    first, last = flushed[0], flushed[-1]

    def flush(latest: RegionManifest) -> ManifestChanges:
        check()
        if any(generation.path == first.path for generation in latest.flushed_generations):
            return {}  # an earlier call has landed after all
        _check_epoch(latest, claim)
        if latest.current_generation != first.generation:
            raise RepairError(
                f"region {claim.region_id} is at generation {latest.current_generation}, "
                f"its writer at {first.generation}: another program has changed the manifest"
            )
        check_progress(manifests, latest, merged)
        return {
            "writer_epoch": claim.epoch + ends_claim,
            "current_generation": last.generation + 1,
            "replay_after_wal_entry_position": max(
                last_position, latest.replay_after_wal_entry_position
            ),
            "wal_entry_position_last_seen": max(last_position, latest.wal_entry_position_last_seen),
            "flushed_generations": (*latest.flushed_generations, *flushed),
            "published": latest_batches(latest.published, published or {}),
            "last_transaction": max(last_transaction, latest.last_transaction),
            "transactions": latest_transactions(latest.transactions, transactions),
        }

    try:
        committed = manifests.change(manifest, flush)
    except NotFoundError as error:
        raise TableReplacedError(
            f"region {claim.region_id} is gone, as the table was deleted or made again: restore "
            "its folder from a copy, or write to the new table with a new writer"
        ) from error
    for generation in flushed:
        FLUSHED_ROWS(generation.rows or 0, {"table": manifests.uri})
        _log.info(
            "flushed generation %d of region %s: %s rows",
            generation.generation,
            claim.region_id,
            generation.rows,
        )
    return committed
