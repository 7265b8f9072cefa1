"""Recording the state of all regions in the MemWAL index (specification 2, "MemWAL Index Builder").

`eventual` readers plan from the record, without opening a manifest. Merge progress is never moved:
the index details are not compare-and-swap (protocol rule 19), so a commit that came after another
one than it was based on is looked at again, and repaired where it took progress back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import lance

from memwal_sql.errors import RepairError, RetryError
from memwal_sql.read.context import TableContext
from memwal_sql.storage.index_details import IndexDetails, commit_details, read_details
from memwal_sql.storage.memory_store import lance_uri
from memwal_sql.storage.region_manifest import RegionManifest
from memwal_sql.storage.region_snapshot import INLINE_REGIONS, encode_regions, external_path
from planner.regions.spec import RegionSpec

_ATTEMPTS = 10


def record_regions(
    context: TableContext,
    manifests: Sequence[RegionManifest],
    specs: Sequence[RegionSpec],
    clock: Callable[[], float] = time.time,
) -> int:
    """Record `manifests` in a new version of the base table, and return that version.

    Up to 100 regions are kept inline, more in `_indices/{uuid}/index.lance`. Raises RetryError
    when other commits kept coming in between.
    """
    data = encode_regions(manifests, specs)
    for _ in range(_ATTEMPTS):
        dataset = _latest(context)
        details = _details(context, dataset)
        index_uuid = uuid4()
        inline = data if len(manifests) <= INLINE_REGIONS else None
        if inline is None:
            context.store.put_if_absent(external_path(index_uuid), data)
        recorded = replace(
            details,
            snapshot_ts_millis=int(clock() * 1000),
            num_regions=len(manifests),
            inline_snapshots=inline,
        )
        try:
            committed = commit_details(dataset, recorded, index_uuid)
        except RetryError:
            continue  # somebody else committed a version that Lance would not pass over
        _keep_progress(context, dataset.version, committed)
        return int(committed.version)
    raise RetryError(f"{context.uri}: other commits came in between {_ATTEMPTS} times; try again")


def _keep_progress(context: TableContext, read_version: int, committed: Any) -> None:
    """Put back the merge progress of the versions that `committed` passed over, if any."""
    for _ in range(_ATTEMPTS):
        own = _details(context, committed)
        most = dict(own.merged_generations)
        for version in range(read_version + 1, committed.version):
            between = _details(context, committed.checkout_version(version))
            for region, generation in between.merged_generations.items():
                most[region] = max(generation, most.get(region, 0))
        if most == dict(own.merged_generations):
            return
        read_version = committed.version
        committed = commit_details(committed, replace(own, merged_generations=most))
    raise RetryError(f"{context.uri}: merges kept coming in between; run the job again")


def _latest(context: TableContext) -> Any:
    return lance.dataset(lance_uri(context.uri), storage_options=context.storage_options)


def _details(context: TableContext, dataset: Any) -> IndexDetails:
    found = read_details(context.store, dataset)
    if found is None:
        raise RepairError(f"{context.uri} lost its MemWAL index in version {dataset.version}")
    return found.details
