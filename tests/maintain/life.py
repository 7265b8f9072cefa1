"""Tables for the tests of maintenance: written, flushed and merged in a few lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import memwal_sql as mw
from memwal_sql.maintain.gc.collector import collect_garbage
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.region.manifest import RegionManifest
from tests.model.merging import manifests, merge_one

SCHEMA = pa.schema([("id", pa.int64()), ("val", pa.int64())])
NOW = timedelta(0)


def create(folder: Path | str, *, regions: int = 1) -> mw.Table:
    """An empty table; one region unless said otherwise."""
    uri = folder / "t" if isinstance(folder, Path) else folder
    spec = None if regions == 1 else [mw.bucket("id", regions)]
    return mw.create_table(uri, SCHEMA, "id", regions=spec)


def rows(first: int, last: int, val: int) -> pa.Table:
    """Rows with the ids from `first` to `last` and one value."""
    ids = list(range(first, last + 1))
    return pa.table({"id": ids, "val": [val] * len(ids)}, schema=SCHEMA)


def flush(table: mw.Table, *batches: pa.Table) -> None:
    """Each batch becomes a generation, by a writer that is then closed."""
    with table.writer() as writer:
        for batch in batches:
            writer.upsert(batch)
            writer.flush()


def merge_all(table: mw.Table) -> None:
    """Merge every generation; no region states are recorded."""
    for region_id in manifests(table.uri):
        while merge_one(table.uri, region_id, ["id"]) is not None:
            pass


def values(table: mw.Table, consistency: str = "strong") -> dict[int, int]:
    """Value by id; the same by a scan and by lookups."""
    found = table.scan(consistency=consistency).read_all()
    assert len(set(found["id"].to_pylist())) == found.num_rows, "a key was returned twice"
    return dict(zip(found["id"].to_pylist(), found["val"].to_pylist(), strict=True))


def manifest(table: mw.Table) -> RegionManifest:
    """The latest manifest of the only region."""
    (found,) = manifests(table.uri).values()
    return found


def kinds(report: pa.Table) -> dict[str, int]:
    """How many things of each kind a report names."""
    found: dict[str, int] = {}
    for kind in report["kind"].to_pylist():
        found[kind] = found.get(kind, 0) + 1
    return found


def collect(
    table: mw.Table,
    *,
    store: ObjectStore | None = None,
    after: float = 0.0,
    clock: Callable[[], float] | None = None,
    **options: Any,
) -> pa.Table:
    """Collect with another store or clock; `after` seconds from now, without grace by default.

    Unless it is another store, which may have faults, a dry run has to say the same before.
    """
    own = store or open_store(table.uri)
    context = TableContext(table.uri, own, read_record(own))
    options.setdefault("older_than", NOW)
    moment = (clock or time.time)() + after
    run = partial(collect_garbage, context, clock=lambda: moment)
    if store is not None:
        return run(**options)
    said = run(**options | {"dry_run": True})
    done = run(**options)
    assert done.equals(said), f"a dry run said {said.to_pylist()}, done was {done.to_pylist()}"
    return done
