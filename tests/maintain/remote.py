"""A table in several regions, and handles of it over a store whose requests a hook sees."""

from __future__ import annotations

from pathlib import Path

import memwal_sql as mw
from tests.maintain.life import create, merge_all, rows
from tests.model.opened import Remote, opened_over
from tests.write.hooked_store import HookedStore

REGIONS = 3
BASE = 2  # requests: is there a newer version, and is this one as it was
LONGEST_SECONDS = 60


def written(folder: Path) -> mw.Table:
    """A table of the keys 0 to 99: a base table, and in each region two generations and an entry
    above it."""
    table = create(folder, regions=REGIONS)
    with table.writer() as writer:
        for number in range(3):
            writer.upsert(rows(0, 99, number))
            writer.flush()
            if not number:
                merge_all(table)
                table.snapshot_regions()
        writer.upsert(rows(0, 99, 3))
    return table


def hooked(table: mw.Table) -> mw.Table:
    """Another handle of the table, over an object store whose requests a hook can see."""
    return opened_over(table.uri, lambda store: HookedStore(Remote(store)))
