"""One region in memory: writers of it, and a plain reading of what it holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
from lance.schema import LanceSchema

from memwal_sql.state.memtable import MemTable, memtable_schema
from memwal_sql.storage.objects.memory import MemoryStore
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.entry import entry_schema
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.claim import ClaimedRegion, claim, claim_new
from memwal_sql.write.flusher import RegionFlusher
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.wal_writer import WalWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("val", pa.string())])
ENTRY_SCHEMA = entry_schema(SCHEMA, LanceSchema.from_pyarrow(SCHEMA))
Rows = dict[int, str | None]


def upsert(rows: Rows) -> pa.RecordBatch:
    """A batch of upserts in the MemTable's schema."""
    return _batch(list(rows), list(rows.values()), [False] * len(rows))


def delete(keys: Iterable[int]) -> pa.RecordBatch:
    """A batch of tombstones in the MemTable's schema."""
    ids = list(keys)
    return _batch(ids, [None] * len(ids), [True] * len(ids))


def _batch(ids: list[int], values: list[str | None], gone: list[bool]) -> pa.RecordBatch:
    columns = [pa.array(ids, pa.int64()), pa.array(values, pa.string()), pa.array(gone)]
    return pa.RecordBatch.from_arrays(columns, schema=memtable_schema(SCHEMA))


class ManualExecutor(Executor):
    """Runs what was submitted when it is told to, in the order of the test's choice."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], object]] = deque()

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.waiting.append(partial(call, *args, **kwargs))
        return Future()

    def run(self, index: int = 0) -> None:
        task = self.waiting[index]
        del self.waiting[index]
        task()

    def run_all(self) -> None:
        while self.waiting:
            self.run()


class InlineExecutor(Executor):
    """Runs everything at once."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        call(*args, **kwargs)
        return Future()


class Region:
    """A region of a table in memory; its generations are kept as Arrow tables."""

    def __init__(self, store: ObjectStore | None = None, *, created: bool = True) -> None:
        self.id = uuid4()
        self.store = store or MemoryStore("memory://test")
        self.generations: dict[str, pa.Table] = {}
        self._generation_count = 0
        if created:
            self.create()

    def create(self, store: ObjectStore | None = None) -> RegionManifest:
        return self.manifests(store).create(RegionManifest(self.id))

    def manifests(self, store: ObjectStore | None = None) -> RegionManifests:
        return RegionManifests(store or self.store, self.id)

    @property
    def manifest(self) -> RegionManifest:
        return self.manifests().latest()

    def wal(self, store: ObjectStore | None = None) -> Wal:
        return Wal(store or self.store, self.id)

    def claim(self, store: ObjectStore | None = None, *, new: bool = False) -> ClaimedRegion:
        """Claim the region; `new` by who has found none in a listing."""
        manifests, wal, known = self.manifests(store), self.wal(store), None
        if new:
            found = claim_new(manifests, wal, lambda: None, RegionManifest(self.id, version=0))
            if isinstance(found, ClaimedRegion):
                return found
            known = found
        return claim(manifests, wal, make_memtable, lambda: None, None, known)

    def open(
        self,
        store: ObjectStore | None = None,
        *,
        new: bool = False,
        executor: Executor | None = None,
        budget: MemoryBudget | None = None,
        write: Callable[[UUID, int, pa.Table], FlushedGeneration] | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        buffered: Callable[[bool], None] = lambda full: None,
        **options: Any,
    ) -> RegionWriter:
        won = self.claim(store, new=new)
        chosen = WriterOptions(**options)
        return RegionWriter(
            claim=won.claim,
            replayed=won.memtables,
            make_memtable=make_memtable,
            wal=WalWriter(
                self.wal(store), self.id, won.claim.epoch, won.next_position, ENTRY_SCHEMA
            ),
            flusher=RegionFlusher(
                claim=won.claim,
                manifests=self.manifests(store),
                write=write or self.write_generation,
                submit=(executor or InlineExecutor()).submit,
                attempts=chosen.flush_attempts,
                sleep=lambda seconds: None,
            ),
            options=chosen,
            budget=budget or MemoryBudget(1 << 40, 1.0),
            buffered=buffered,
            clock=clock,
        )

    def write_generation(self, region: UUID, generation: int, rows: pa.Table) -> FlushedGeneration:
        self._generation_count += 1
        path = f"{self._generation_count:08x}_gen_{generation}"
        self.generations[path] = rows
        return FlushedGeneration(generation, path, rows=rows.num_rows)

    def entries(self) -> list[Any]:
        wal = self.wal()
        return [wal.read(position) for position in wal.positions()]

    def rows(self) -> Rows:
        """What the region holds, read in the most plain way: generations, then the WAL."""
        manifest, held = self.manifest, dict[int, str | None]()
        for flushed in manifest.flushed_generations:
            _apply(held, self.generations[flushed.path])
        for entry in self.entries():
            if entry.position > manifest.replay_after_wal_entry_position and entry.batch:
                _apply(held, entry.batch)
        return held


def make_memtable(generation: int) -> MemTable:
    """An empty MemTable of the region."""
    return MemTable("r", generation, SCHEMA, ("id",))


def seen(writer: RegionWriter) -> Rows:
    """What readers of this process see of the unflushed rows."""
    held: Rows = {}
    for source in writer.tail().memtables:
        columns = ["id", "val", "_tombstone"]
        for batch in source.scan(columns, [], None):
            _apply(held, batch)
    return held


def _apply(held: Rows, rows: pa.Table | pa.RecordBatch) -> None:
    for row in rows.to_pylist():
        if row["_tombstone"]:
            held.pop(row["id"], None)
        else:
            held[row["id"]] = row["val"]
