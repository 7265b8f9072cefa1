"""The writers of a table's regions: one each, opened when the first rows for its region come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from threading import Lock
from typing import TypeVar
from uuid import UUID

import pyarrow as pa

from memwal_sql.errors import UnsupportedError, WriterFailedError
from memwal_sql.life_log import deferred_logs
from memwal_sql.state import open_writers as live
from memwal_sql.storage.deadlines import with_deadline
from memwal_sql.write.region_opener import OpenRegion, RegionOpener
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.router import RegionKey, RegionValues, Router

_PARALLEL_REGIONS = 16
R = TypeVar("R")


class RegionWriters:
    """Divides rows among the writers of their regions, which it opens, and asks several at once."""

    def __init__(
        self, opener: RegionOpener, region: str | None, check_open: Callable[[], None]
    ) -> None:
        """
        Args:
            region: the name or UUID of the one region to write, for manual regions.
            check_open: raises where no region may be opened any more.
        """
        self._opener = opener
        self._manual = region or ""
        self._check_open = check_open
        self._router = None if opener.spec is None else Router(opener.spec)
        self._writers: dict[RegionKey, RegionWriter] = {}
        self._open_lock = Lock()
        self._pool = ThreadPoolExecutor(_PARALLEL_REGIONS, "memwal-region")

    def __iter__(self) -> Iterator[RegionWriter]:
        """Those that are open now."""
        return iter(list(self._writers.values()))

    def route(self, batch: pa.RecordBatch) -> list[tuple[RegionWriter, pa.RecordBatch]]:
        """The rows of each region and its writer, which has claimed it."""
        spec = self._opener.spec
        if self._router is None or spec is None:
            if () not in self._writers:
                self._open_missing({(): partial(self._opener.found_manual, self._manual)})
            return [(self._writers[()], batch)]
        parts = self._router.route(batch)
        if any(part.key not in self._writers for part in parts):
            self._open_missing(
                {part.key: partial(self._opener.found, spec, part.values) for part in parts}
            )
        return [(self._writers[part.key], part.rows) for part in parts]

    def all(self, regions: Sequence[tuple[int, RegionValues | None]]) -> list[RegionWriter]:
        """The writers of all regions, given by spec and values, which they claim.

        Raises UnsupportedError for one that this writer's rows could not be in.
        """
        spec = self._opener.spec
        missing: dict[RegionKey, Callable[[], OpenRegion]] = {}
        for spec_id, values in regions:
            if spec is None or spec_id != spec.spec_id or values is None:
                raise UnsupportedError(
                    "a serializable statement claims every region, and one of this table belongs "
                    "to an earlier region spec, or its values are not known"
                )
            key = tuple(values[name] for name in spec.field_ids)
            missing[key] = partial(self._opener.found, spec, values)
        if not missing.keys() <= self._writers.keys():
            self._open_missing(missing)
        return list(self)

    def check_regions_stay(self, before: pa.Table, after: pa.Table) -> None:
        """Raise UnsupportedError where a key and the one that replaces it are of two regions."""
        if self._router is None:
            return
        regions = zip(*(self._router.regions(keys) for keys in (before, after)), strict=True)
        for place, (old, new) in enumerate(regions):
            if old != new:
                keys = [tuple(t.slice(place, 1).to_pylist()[0].values()) for t in (before, after)]
                raise UnsupportedError(
                    f"the row of the key {keys[0]} would move to another region with the key "
                    f"{keys[1]}, and a write to several regions is not one transaction: insert it "
                    "with the new key, then delete the old one"
                )

    def together(self, calls: Mapping[RegionWriter, Callable[[], int]]) -> dict[UUID, int]:
        """By region, the position that a call of its writer returns; raises what the first one
        raised, of which it is unknown what it has written if there is such a one, with a note of
        those that went well."""
        if len(calls) == 1 or not self._opener.options.durable:
            # One region, or nothing to wait for.
            return {writer.region_id: call() for writer, call in calls.items()}
        appends = [(writer, self._submit_or_call(call)) for writer, call in calls.items()]
        positions: dict[UUID, int] = {}
        errors: list[BaseException] = []
        try:
            wait(future for _, future in appends)
        except BaseException:
            # No append may land after a later call's: those that have not begun never do. What is
            # enqueued has its place, and lands with what comes next.
            wait([future for _, future in appends if not future.cancel()])
            raise
        for writer, future in appends:
            error = future.exception()
            if error is None:
                positions[writer.region_id] = future.result()
            else:
                errors.append(error)
        if errors:
            unknown = (error for error in errors if isinstance(error, WriterFailedError))
            raised = next(unknown, errors[0])
            if positions:
                raised.add_note(
                    f"the rows of this call for the regions {[str(r) for r in positions]} "
                    "are written"
                )
            raise raised
        return positions

    def each(self, call: Callable[[RegionWriter], None], errors: list[Exception]) -> None:
        """Call it of every writer, and gather what is raised."""
        for writer in self:
            try:
                call(writer)
            except Exception as error:
                errors.append(error)

    def shutdown(self) -> None:
        """Return when no call is under way."""
        self._pool.shutdown()

    def _open_missing(self, wanted: Mapping[RegionKey, Callable[[], OpenRegion]]) -> None:
        with deferred_logs(), self._open_lock:
            self._check_open()
            missing = {key: find for key, find in wanted.items() if key not in self._writers}
            if missing:
                self._opener.look()
            # All are looked for before one is made, or they would look at those of each other.
            call = self._submit if len(missing) > 1 else _called
            finding = {key: call(find) for key, find in missing.items()}
            found = {key: future.result() for key, future in finding.items()}
            opening = {key: call(claim) for key, claim in found.items()}
            errors = []
            for key, future in opening.items():
                if (error := future.exception()) is not None:
                    errors.append(error)
                else:
                    writer = future.result()
                    self._take_over(writer)  # before it takes rows: readers find these with it
                    self._writers[key] = writer
            if errors:
                raise errors[0]

    def _submit_or_call(self, call: Callable[[], R]) -> Future[R]:
        """A call that is made in any case: what is enqueued has to be landed, and told."""
        try:
            return self._pool.submit(call)
        except RuntimeError:  # another thread closes the writer, or the interpreter ends
            return _called(call)

    def _submit(self, call: Callable[[], R]) -> Future[R]:
        try:
            return self._pool.submit(with_deadline(call))
        except RuntimeError:
            self._check_open()  # another thread closes the writer
            return _called(call)  # the interpreter ends

    def _take_over(self, writer: RegionWriter) -> None:
        before = live.register(self._opener.context.identity, writer)
        if before is not None:
            before.taken_over(writer.epoch)


def _called(call: Callable[[], R]) -> Future[R]:
    """What a call has come to that was made here and now."""
    called: Future[R] = Future()
    try:
        called.set_result(call())
    except Exception as error:
        called.set_exception(error)
    return called
