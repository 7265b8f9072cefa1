"""Compares live rows with the rows that a snapshot of the same look has."""

from __future__ import annotations

import pyarrow as pa

from memwal_native import LiveImage
from memwal_sql.read.planning import stream
from planner.model import Query, Snapshot
from planner.plan import plan


def check_live(live: LiveImage, snapshot: Snapshot) -> None:
    """Raise AssertionError if live rows are not those of the snapshot, by the columns that they
    have."""
    schema, key = snapshot.info.schema, snapshot.info.primary_key
    names = [name for place, name in enumerate(schema.names) if live.has(place)]
    rows, _ = live.read([schema.get_field_index(name) for name in names])
    order = [(name, "ascending") for name in key] if set(names) >= set(key) else []
    ours = pa.table(rows).sort_by(order)
    theirs = stream(plan(Query(tuple(names), (), None), snapshot)).read_all().sort_by(order)
    # NaN is not equal to itself.
    if not ours.equals(theirs) and repr(ours.to_pylist()) != repr(theirs.to_pylist()):
        raise AssertionError(
            f"{len(ours)} live rows beside {len(theirs)} of the snapshot; the first that differs: "
            f"{_difference(ours, theirs)}"
        )


def _difference(ours: pa.Table, theirs: pa.Table) -> object:
    pairs = zip(ours.to_pylist(), theirs.to_pylist(), strict=False)
    return next(((row, other) for row, other in pairs if repr(row) != repr(other)), None)
