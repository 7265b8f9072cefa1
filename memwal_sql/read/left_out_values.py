"""The values of regions whose manifests leave them out, as LanceDB does (protocol rules 1 and 11).

LanceDB derives a region's id from the values. If few values are possible, the id tells them;
otherwise a row of the region tells them, and the id proves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count

import pyarrow as pa

from exec_nodes.lance.errors import lance_errors
from exec_nodes.lance.reading import rows_of
from exec_nodes.lance.stored_generation import open_generation
from memwal_sql.errors import MemWalError, StoreUnavailableError
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.paths import generation_uri
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.values import value_types
from memwal_sql.storage.region.versions import RegionManifests
from planner.regions.ids import is_lancedb_spec, lancedb_id, lancedb_values
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue

_DERIVED = 5  # the version of a UUID that is derived from a name


def with_values(context: TableContext, base: BaseTable, manifest: RegionManifest) -> RegionManifest:
    """A manifest with the region's values, if they can be known. Raises StoreUnavailableError."""
    spec = base.info.spec(manifest.region_spec_id)
    if spec is None or manifest.region_values is not None:
        return manifest
    # Native code does not record the types of values: the spec has them.
    typed = RegionManifests(context.store, manifest.region_id, value_types(spec))
    manifest = typed.with_types(manifest)
    if manifest.region_values is not None or not spec.reads_only(base.info.primary_key):
        return manifest
    values: Mapping[str, RegionValue] | None = lancedb_values(spec, manifest.region_id)
    if values is None and _may_be_derived(spec, manifest):
        row_values = _values_of_a_row(context, base, manifest, spec)
        if row_values is not None and lancedb_id(spec, row_values) == manifest.region_id:
            values = row_values
    return manifest if values is None else replace(manifest, region_values=values)


def may_come(base: BaseTable, manifest: RegionManifest) -> bool:
    """Whether unknown values can become known once the region has rows, or they are read."""
    spec = base.info.spec(manifest.region_spec_id)
    if spec is None or not spec.reads_only(base.info.primary_key):
        return False
    return _may_be_derived(spec, manifest)


def is_lancedbs(context: TableContext, base: BaseTable, manifest: RegionManifest) -> bool:
    """Whether LanceDB must have made a region with unknown values, as all of its rows, if any, are
    where LanceDB would put them; regions with other values belong to others. Raises
    StoreUnavailableError."""
    spec = base.info.spec(manifest.region_spec_id)
    if spec is None or not _may_be_derived(spec, manifest):
        return False
    row_values = _values_of_a_row(context, base, manifest, spec)
    return row_values is None or lancedb_id(spec, row_values) == manifest.region_id


def _may_be_derived(spec: RegionSpec, manifest: RegionManifest) -> bool:
    """Whether LanceDB may have derived the region's id from values that only its rows tell."""
    of_rows = is_lancedb_spec(spec) and spec.fields[0].transform == "identity"
    return of_rows and manifest.region_id.version == _DERIVED


def _values_of_a_row(
    context: TableContext, base: BaseTable, manifest: RegionManifest, spec: RegionSpec
) -> Mapping[str, RegionValue] | None:
    """The region values of one of its rows; None without rows, or if the row is damaged, which
    queries report. Raises StoreUnavailableError."""
    try:
        for read in (_flushed_row, _logged_row):
            rows = read(context, base, manifest)
            if rows is not None and rows.num_rows:
                return spec.values_of(spec.evaluate(rows.slice(0, 1)))[0]
    except StoreUnavailableError:
        raise
    except MemWalError:
        return None
    return None


def _flushed_row(
    context: TableContext, base: BaseTable, manifest: RegionManifest
) -> pa.Table | None:
    if not manifest.flushed_generations:
        return None
    generation = manifest.flushed_generations[-1]
    name = f"generation {generation.generation}"
    uri = generation_uri(lance_uri(context.uri), manifest.region_id, generation.path)
    with lance_errors(name, uri):
        dataset = open_generation(uri, name, generation.rows, context.storage_options)
        dataset = base.names.project(dataset)
        return rows_of(dataset.scanner(columns=list(base.info.primary_key), limit=1))


def _logged_row(
    context: TableContext, base: BaseTable, manifest: RegionManifest
) -> pa.Table | None:
    wal = context.wal(manifest.region_id, base.stored)
    for position in count(manifest.replay_after_wal_entry_position + 1):
        entry = wal.read(position)
        if entry is None:
            return None
        if entry.batch is not None:
            return pa.Table.from_batches([entry.batch])
    return None
