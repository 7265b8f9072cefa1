"""The regions recorded in the MemWAL index of a base version (specification 1)."""

from __future__ import annotations

from collections.abc import Iterable

from memwal_sql.errors import RetryError
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.merge_token import partial_generation, unknown_partial
from memwal_sql.storage.base.versions import recorded_manifests
from memwal_sql.storage.region.manifest import RegionManifest

_BYTES_PER_REGION = 1024


def recorded_regions(context: TableContext, base: BaseTable) -> list[RegionManifest] | None:
    """The region states recorded at `base`; None when none were, or the file has gone, or where a
    generation that is merged in part is not among them (protocol rule 20).

    Readers of the present then take the region manifests instead; a version that was asked for
    reads as the base table alone (protocol rules 18 and 23).
    """
    key = context.scope.key("recorded regions", base.etag, base.etag)
    cached: list[RegionManifest] | None = context.scope.store.get(key)
    if cached is None:
        cached = recorded_manifests(context.store, base.details, base.info.region_specs)
        if cached is None:
            return None
        if not _covers_parts(base, cached):
            return None
        context.scope.store.put(key, cached, _BYTES_PER_REGION * len(cached))
    return cached


def check_whole(context: TableContext, base: BaseTable) -> None:
    """Raise RetryError for a version that holds a part of a generation and can't be read with the
    rest of it, as no record names the generation."""
    if recorded_regions(context, base) is None and not _covers_parts(base, ()):
        raise RetryError(
            f"version {base.version} of {context.uri} was committed in the middle of a merge: open"
            " the version before it, or a later one"
        )


def _covers_parts(base: BaseTable, manifests: Iterable[RegionManifest]) -> bool:
    """Whether every generation that is merged in part is hidden by the whole one."""
    progress = base.details.merged_generations
    known = {manifest.region_id: manifest for manifest in manifests}
    for region_id, manifest in known.items():
        part = partial_generation(progress, region_id)
        if part is not None and manifest.current_generation <= part:
            return False
    return not unknown_partial(progress, known)
