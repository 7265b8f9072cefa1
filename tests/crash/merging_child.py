"""The doomed merger: it merges, builds indexes and compacts, and kills itself where it is told."""

from __future__ import annotations

from multiprocessing.connection import Connection

import lance
from lance.dataset import DatasetOptimizer, MergeInsertBuilder

from memwal_sql.maintain.compact import compactor
from memwal_sql.maintain.merge.passes import Passes
from tests.crash.doomed import SURVIVED, Death, open_doomed

LANCE_CALLS = (
    (lance, "dataset"),
    (lance.LanceDataset, "commit"),
    (MergeInsertBuilder, "execute"),
    (DatasetOptimizer, "optimize_indices"),
    (compactor, "_execute"),
    (compactor, "_commit"),
)


def merge_until_death(uri: str, pass_bytes: int, death: Death, link: Connection) -> None:
    """Merge in passes of so many bytes, build indexes, and compact."""
    table = open_doomed(uri, death, LANCE_CALLS)
    initialise = Passes.__init__

    def small(self: Passes, *args: object) -> None:
        initialise(self, *args, max_bytes=pass_bytes)  # type: ignore[arg-type]

    Passes.__init__ = small  # type: ignore[assignment, method-assign]
    table.merge()
    table.build_indexes()
    if death.where != "store":  # a compaction puts records of the lease alone
        table.compact()
    link.send(SURVIVED)
