"""What a merger does to the base table, with pylance's own merge call."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.mem_wal import CompactedSsTable

from memwal_sql.errors import NotFoundError
from memwal_sql.storage.base.memwal_index import IndexDetails, read_details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.paths import generation_folder
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests


def manifests(uri: str) -> dict[UUID, RegionManifest]:
    """The latest manifest of every region."""
    store = open_store(uri)
    found = {}
    for folder in store.list_folders("_mem_wal"):
        region_id = UUID(folder.rstrip("/").rpartition("/")[2])
        with suppress(NotFoundError):  # the folder of a region that is just being created
            found[region_id] = RegionManifests(store, region_id).latest()
    return found


def details_of(uri: str, dataset: Any = None) -> IndexDetails:
    """The details of the MemWAL index of the latest base version, or that of `dataset`."""
    found = read_details(open_store(uri), lance.dataset(uri) if dataset is None else dataset)
    assert found is not None
    return found.details


def merged_generations(uri: str) -> dict[UUID, int]:
    """The merge progress of the latest base version."""
    return dict(details_of(uri).merged_generations)


def merge_one(uri: str, region_id: UUID, primary_key: list[str]) -> int | None:
    """Merge the oldest unmerged generation of a region; its number, or None when all are merged.

    Deletes go first, in a commit of their own: the generation still hides those rows. The upserts
    and the progress mark are one commit (specification 2, "MemTable Merger").
    """
    merged = merged_generations(uri).get(region_id, 0)
    waiting = {g.generation: g.path for g in manifests(uri)[region_id].flushed_generations}
    generation = merged + 1
    if generation not in waiting:
        return None
    folder = generation_folder(region_id, waiting[generation])
    rows = lance.dataset(f"{uri.rstrip('/')}/{folder.rstrip('/')}").to_table()
    tombstones = rows.filter(rows["_tombstone"])
    upserts = rows.filter(pc.invert(rows["_tombstone"])).drop_columns(["_tombstone"])
    base = lance.dataset(uri)
    if tombstones.num_rows:
        keys = tombstones.select(primary_key)
        base.merge_insert(primary_key).when_matched_delete().execute(keys)
    schema = base.schema
    source = pa.table([upserts[name] for name in schema.names], schema=schema)
    (
        base.merge_insert(primary_key)
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .mark_sstables_as_compacted([CompactedSsTable(str(region_id), generation)])
        .execute(source)
    )
    return generation


def keys_in_base(uri: str, primary_key: list[str]) -> pa.Table:
    """The keys of the rows that are physically in the base table."""
    return lance.dataset(uri).to_table(columns=primary_key)
