"""Reads rows into an image."""

from __future__ import annotations

from collections.abc import Sequence

from exec_nodes.base.tasks import is_ending
from exec_nodes.resident.store import STORE
from exec_nodes.sources.lance_source import LanceSource
from memwal_native import LiveImage
from memwal_sql.read.live.kept import too_large
from memwal_sql.read.live.settings import Live
from memwal_sql.read.live.taken import ImageLostError, keys_of
from memwal_sql.read.planning import batches
from planner.model import Query, Snapshot
from planner.plan import plan


def load(
    live: LiveImage, columns: Sequence[int], snapshot: Snapshot, *, is_new: bool
) -> dict[int, str]:
    """Load admitted columns of the rows of a snapshot, which were those of the image when the
    columns were admitted; into one that `is_new`, its keys too. Returns the columns that are not
    kept after all, and why.

    Raises ImageLostError where the image would take too much memory, or has not all of the rows.
    """
    schema, key = snapshot.info.schema, snapshot.info.primary_key
    names = {column: schema.names[column] for column in columns}
    refused, sizes, rows = dict[int, str](), dict.fromkeys(columns, 0), 0
    query = Query(tuple(dict.fromkeys([*key, *names.values()])))
    for batch in batches(plan(query, snapshot)):
        if is_ending():
            raise ImageLostError("the process ends")
        keys = keys_of(batch, key)
        if is_new:
            live.insert(keys)
        if names:
            live.load(list(names), batch.select(list(names.values())), keys)
        rows += batch.num_rows
        for column, name in list(names.items()):
            sizes[column] += batch.column(name).nbytes
            if sizes[column] > Live.longest * rows:
                refused[column] = f"the values of {name} are longer than {Live.longest} bytes"
            elif sizes[column] > STORE.largest:
                refused[column] = f"{name} would take more than {STORE.largest} bytes"
            else:
                continue
            live.evict(column)
            del names[column]
        of_keys, of_columns, of_log = live.nbytes
        if of_keys + sum(of_columns.values()) + of_log > Live.budget * STORE.max_bytes:
            raise ImageLostError(too_large())
    if is_new and len(live) < rows:
        raise ImageLostError("some rows have the same key: plain Lance has appended them")
    if isinstance(snapshot.base, LanceSource):
        own = [
            name for column, name in enumerate(schema.names) if column in names or live.has(column)
        ]
        snapshot.base.evict(own)  # or they would be in memory twice
    return refused
