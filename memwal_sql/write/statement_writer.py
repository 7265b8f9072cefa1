"""The statements of a table's writer: run under their isolation, landed, and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from memwal_sql.errors import (
    MemWalError,
    PartlyWrittenError,
    ReopenError,
    RetryError,
    UnsupportedError,
)
from memwal_sql.write.conditional.resolve import Compute, Resolved
from memwal_sql.write.coordinator import AtomicWrite, Description
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.region_writers import RegionWriters
from memwal_sql.write.result import DURABLE, WriteResult, reached
from memwal_sql.write.router import RegionValues
from memwal_sql.write.statement import (
    SNAPSHOT,
    Enqueued,
    Enqueuer,
    ReadRegions,
    RegionWrites,
    check_isolation,
)


@dataclass(frozen=True, slots=True)
class StatementWriter:
    """Runs statements, and waits until their writes have landed.

    Attributes:
        regions: the spec and the values of all regions of the table.
        routes: whether a row determines its region; otherwise UnsupportedError.
    """

    enqueuer: Enqueuer
    writers: RegionWriters
    regions: Callable[[], Sequence[tuple[int, RegionValues | None]]]
    routes: bool
    options: WriterOptions

    def over_keys(
        self, keys: pa.RecordBatch, compute: Compute, isolation: str = SNAPSHOT
    ) -> WriteResult:
        """See `Enqueuer.over_keys`."""
        self._check_routes()
        if keys.num_rows == 0:
            return WriteResult(0, reached(self.options))
        if isolation == SNAPSHOT:
            return self._run(lambda: self.enqueuer.over_keys(keys, compute))
        reads = ReadRegions(lambda: [writer for writer, _ in self.writers.route(keys)], tuple)
        return self._run(lambda: self.enqueuer.as_a_whole(lambda: compute(keys), reads))

    def over_rows(
        self,
        select: Callable[[], Resolved],
        compute: Compute,
        isolation: str,
        *,
        whole: bool = False,
    ) -> WriteResult:
        """See `Enqueuer.over_rows`, or, for a statement that is read again as a `whole`,
        `Enqueuer.as_a_whole`; a serializable one always is."""
        self._check_routes()
        check_isolation(isolation)
        if isolation == SNAPSHOT and whole:
            return self._run(lambda: self.enqueuer.as_a_whole(select))
        if isolation == SNAPSHOT:
            return self._run(lambda: self.enqueuer.over_rows(select, compute))
        reads = ReadRegions(self.claim_all, lambda: list(self.writers))
        return self._run(lambda: self.enqueuer.as_a_whole(select, reads))

    def described(self, description: Description) -> StatementWriter:
        """This, for a statement of which a record says more."""
        return replace(self, enqueuer=replace(self.enqueuer, description=description))

    def whole_rows(self, rows: pa.RecordBatch, *, atomic: bool = False) -> WriteResult | None:
        """Write whole rows as one transaction. Unless it must be `atomic`, None where one entry
        suffices, or where they can't be one."""

        def land() -> WriteResult | None:
            transaction = self.enqueuer.transaction_of(rows, atomic=atomic)
            if transaction is None:
                return None
            return self._land(Enqueued(transaction, rows.num_rows, 0, 0))

        return self.writers.in_turn(land)

    def claim_all(self) -> list[RegionWriter]:
        """The writers of all regions of the table, which are claimed."""
        return self.writers.all(self.regions())

    def _check_routes(self) -> None:
        if not self.routes:
            raise UnsupportedError(
                "the regions of this table are manual, and a key read may be in another one "
                "than this writer's: write rows that have all columns, or upsert them with "
                'missing="null"'
            )

    def _run(self, enqueue: Callable[[], Enqueued]) -> WriteResult:
        """The result of a statement, which reads and computes everything again if its regions were
        handed over before it had written anything."""
        return self.writers.in_turn(lambda: self._land(enqueue()))

    def _land(self, enqueued: Enqueued) -> WriteResult:
        writes = enqueued.writes
        if isinstance(writes, AtomicWrite):
            places = {part.region: part.position for part in writes.land().parts}
            positions = {region: places[region] for region in writes.regions}
            return WriteResult(
                enqueued.rows, DURABLE, positions, enqueued.skipped, enqueued.not_found
            )
        landing = {writer: partial(writer.land, of_region) for writer, of_region in writes}
        try:
            positions = self.writers.together(landing)
        except (ReopenError, RetryError) as error:
            if partly := _partly_written(writes, error):
                raise partly from error
            raise
        return WriteResult(
            enqueued.rows,
            reached(self.options),
            positions if self.options.durable else {},
            enqueued.skipped,
            enqueued.not_found,
            enqueued.is_atomic,
        )


def _partly_written(writes: RegionWrites, error: MemWalError) -> PartlyWrittenError | None:
    """The error to raise for one that came while rows landed; None if no row has landed."""
    regions = tuple(
        writer.region_id for writer, of_region in writes if any(w.position for w in of_region)
    )
    if not regions:
        return None
    return PartlyWrittenError(
        f"{error}; but rows of this call for the regions {[str(region) for region in regions]} are "
        "written: read them back before you repeat the call, which would change them twice",
        regions,
    )
