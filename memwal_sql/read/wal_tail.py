"""The unflushed rows of a region whose writer lives elsewhere, read from its WAL."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from threading import Lock

from exec_nodes.resident.store import STORE
from exec_nodes.sources.memtable_source import MemTableSource
from memwal_sql.errors import TornEntryError
from memwal_sql.read.log_end import LogEnd
from memwal_sql.read.region_probe import RegionProbe, RegionProbes
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.replay import Entries, Replay, memtables_of, read_ahead
from memwal_sql.state.tail import Tail
from memwal_sql.storage.objects.concurrent import run_with
from memwal_sql.storage.records.intent import TransactionName
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.wal.log import WalEntry
from memwal_sql.storage.wal.torn import is_skipped
from memwal_sql.storage.wal.undecided import is_undecided


class WalTail:
    """Replays the WAL above the flushed position into read-only MemTables and keeps them current.

    If nothing was written, reading again costs one request for the next WAL position, and on a
    local disk one for the position above it.
    """

    def __init__(
        self,
        context: TableContext,
        probes: RegionProbes,
        end: LogEnd,
        name: str,
        base: BaseTable,
    ) -> None:
        self._probes = probes
        self._wal = context.wal(probes.manifests.region_id, base.stored)
        self._end = end
        self._make = memtables_of(base.info, name)
        self._replay = Replay(self._wal, 1, self._make)
        self._next = 1
        self._based_on = (0, 0)
        self._unsure = True
        self._is_whole = True
        self._passed_over: dict[int, WalEntry] = {}
        self._lock = Lock()

    def probe(self, manifest: RegionManifest) -> RegionProbe:
        """A probe for `read`, with nothing asked yet."""
        with self._lock:
            return self._probe(manifest)

    def _probe(self, manifest: RegionManifest, *, in_order: bool = False) -> RegionProbe:
        self._rebase(manifest)
        goes_on = self._next, partial(self._goes_on, self._next)
        return RegionProbe(self._probes, manifest, goes_on, in_order=in_order)

    def _goes_on(self, position: int) -> bool:
        return self._wal.exists(position) or self._end.is_passed(position)

    def read(
        self, probe: RegionProbe, manifest: RegionManifest, since: int = 0
    ) -> tuple[RegionManifest, Tail]:
        """The tail above `manifest`, the manifest of `probe` or a newer one, or above a still newer
        one that is found; its marks are those above the position `since`.

        The tail ends before an intent that is undecided, unless its coordinator has given it up.

        A missing entry ends the tail only if no newer manifest has flushed it (protocol rule 15): a
        flush and a collection could otherwise hide rows. Raises CorruptFileError, at every call,
        for one that is missing below others. After news that is found at any distance; without
        news, a lost next entry may pass for one not written yet, unless `LogEnd` tells. On a local
        disk more than the next position is checked once after each flush. Raises TornEntryError for
        a torn entry that a manifest says was complete.
        """
        unsure = 0
        with self._lock:
            if any(map(self._wal.verdict, self._passed_over.values())):
                self._is_whole = False  # committed after all, beside a native writer
            while True:
                self._rebase(manifest)
                if probe.manifest is not manifest or probe.position != self._next:
                    probe = self._probe(manifest)
                # Asked before the entries are read: most of them may be flushed by now.
                newer = probe.newer()
                if newer is None and (probe.log_goes_on or self._unsure):
                    whole = self._follow(manifest.wal_entry_position_last_seen)
                    if whole and probe.holds:
                        break
                    # Missing entries may be flushed by now.
                    latest = RegionProbe(self._probes, manifest).latest()
                    newer = None if latest is manifest else latest
                    if newer is None and not whole:
                        raise self._wal.missing(self._next)
                    if newer is None:
                        break
                elif newer is None and probe.is_sure:
                    break
                unsure += newer is None
                manifest = newer or manifest
                probe = self._probe(manifest, in_order=unsure > 1)
            return manifest, self._tail(since)

    @property
    def memtables(self) -> tuple[MemTableSource, ...]:
        """The rows read last."""
        return tuple([generation.memtable.snapshot() for generation in self._replay.memtables])

    @property
    def is_quiet(self) -> bool:
        """Whether no entry was passed over."""
        return not self._passed_over

    @property
    def transactions(self) -> list[TransactionName]:
        """The committed transactions among the rows read last."""
        return [name for memtable in self._replay.memtables for name in memtable.transactions]

    def _tail(self, since: int) -> Tail:
        marks = [mark for m in self._replay.memtables for mark in m.marks if mark.position > since]
        end, fence = self._next - 1, self._replay.fence
        return Tail(self.memtables, end, fence, tuple(marks), self.is_quiet)

    def _rebase(self, manifest: RegionManifest) -> None:
        """Drop MemTables that `manifest` has flushed; start again if it cuts through a MemTable, or
        after an interrupt."""
        flushed = manifest.replay_after_wal_entry_position
        current = manifest.current_generation
        if (flushed, current) == self._based_on and self._is_whole:
            return
        replayed = self._replay.memtables
        remaining = [
            generation
            for generation in replayed
            if self._is_whole and generation.memtable.generation >= current
        ]
        whole = all(
            generation.last_position <= flushed
            for generation in replayed
            if generation not in remaining
        )
        for generation in replayed:
            if generation not in remaining:
                STORE.evict(generation.memtable.identity)
        if remaining and whole and self._next > flushed:
            replayed[:] = remaining
        else:
            self._replay = Replay(self._wal, current, self._make)
            self._next = flushed + 1
            self._unsure = not self._wal.remote
            self._is_whole = True
        self._passed_over = {p: e for p, e in self._passed_over.items() if flushed < p < self._next}
        self._based_on = (flushed, current)

    def _follow(self, complete: int) -> bool:
        """Read the entries from the next position on; False if the one that ended it is missing
        below others."""
        self._unsure = True  # until all is read: the next call must not take a gap for the end
        whole = self._read_on(complete)
        self._unsure = not whole
        return whole

    def _listed(self) -> Entries:
        """The entries up to the end that a listing gives, where reading ahead saves round trips.
        The next one, which is there as a rule, is read meanwhile."""
        first, read = self._next, dict[int, WalEntry]()

        def read_next() -> None:
            with suppress(TornEntryError):  # it is read again
                entry = self._wal.read(first)
                if entry is not None:
                    read[first] = entry

        last = run_with(True, self._end.last, read_next)
        return read_ahead(self._wal, first, max(last, *read, 0) + 1, read)

    def _read_on(self, complete: int) -> bool:
        listed = self._wal.remote
        entries = self._listed() if listed else read_ahead(self._wal, self._next, None)
        for position, entry in entries:
            if entry is None:  # collected, lost, or the end
                return not (listed or self._wal.is_lost(position))
            if isinstance(entry, TornEntryError):
                if position <= complete and not is_skipped(self._wal, position):
                    raise entry
                if not self._wal.near(position + 1):
                    return True  # it may still be being written
            elif self._wal.verdict(entry) is None:
                if is_undecided(self._wal, entry):
                    return True
                if self._wal.verdict(entry) is None:
                    self._passed_over[position] = entry
            self._is_whole = False  # an interrupt (Ctrl-C) here leaves the MemTable in parts
            self._replay.add(position, entry)
            self._next = position + 1
            self._is_whole = True
        return True
