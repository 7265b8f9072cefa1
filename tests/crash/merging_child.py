"""The doomed merger: it merges and builds indexes, and kills itself where it is told."""

from __future__ import annotations

import threading
from multiprocessing.connection import Connection

import lance
from lance.dataset import DatasetOptimizer, MergeInsertBuilder

import memwal_sql as mw
from memwal_sql import create
from memwal_sql.maintain import merger
from tests.crash.child import Death, _die, _Trap, _TrappedStore

LANCE_CALLS = (
    (lance, "dataset"),
    (lance.LanceDataset, "commit"),
    (MergeInsertBuilder, "execute"),
    (DatasetOptimizer, "optimize_indices"),
)


def merge_until_death(uri: str, pass_bytes: int, death: Death, link: Connection) -> None:
    """Merge and build indexes; a process that lives to see the end sends the number of trapped
    calls."""
    trap = _Trap(death)
    if death.where == "store":
        opened = create.open_store
        create.open_store = lambda *a, **k: _TrappedStore(opened(*a, **k), trap)
    table = mw.open_table(uri)
    if death.where == "lance":
        for owner, name in LANCE_CALLS:
            setattr(owner, name, trap.around(getattr(owner, name)))
    if death.where == "time":
        threading.Timer(death.seconds, _die).start()
    initialise = merger.Merger.__init__

    def in_small_passes(self: merger.Merger, *args: object) -> None:
        initialise(self, *args, max_pass_bytes=pass_bytes)  # type: ignore[arg-type]

    merger.Merger.__init__ = in_small_passes  # type: ignore[assignment, method-assign]
    table.merge()
    table.build_indexes()
    link.send(trap.calls)
