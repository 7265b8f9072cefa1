"""Reads the numbers of an overview."""

from __future__ import annotations

from memwal_sql.read.inspect import indexes as index_table
from memwal_sql.read.live.state import LiveState
from memwal_sql.read.recorded import recorded_regions
from memwal_sql.read.region import RegionReader, Unflushed, values_in_order
from memwal_sql.read.registry import RegionRegistry
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.tail import Tail
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.view.overview import GenerationView, IndexView, Overview, RegionView
from planner.regions.text import text_of
from planner.regions.values import region_name


def overview(
    context: TableContext,
    base: BaseTable,
    registry: RegionRegistry,
    live: LiveState | None = None,
    *,
    pinned: bool,
) -> Overview:
    """An overview of the current state, or, when `pinned`, of the state recorded at `base`. `live`
    are the rows in memory."""
    fragments = base.dataset.get_fragments()
    return Overview(
        uri=context.uri,
        version=base.version,
        primary_key=base.info.primary_key,
        columns=tuple((field.name, str(field.type)) for field in base.info.schema),
        region_specs=tuple(map(text_of, base.info.region_specs)),
        rows=sum(fragment.count_rows() for fragment in fragments),
        bytes=sum(
            f.file_size_bytes or 0 for fragment in fragments for f in fragment.metadata.files
        ),
        fragments=len(fragments),
        regions=_recorded(context, base) if pinned else _present(context, base, registry),
        indexes=tuple(
            IndexView(
                name=row["name"],
                columns=tuple(row["columns"]),
                type=row["type"],
                rows_indexed=row["rows_indexed"],
                maintained=row["maintained"],
            )
            for row in index_table(base).to_pylist()
        ),
        format_version=None if context.record is None else context.record.needs.writer,
        storage_version=base.dataset.data_storage_version,
        live=live,
    )


def _present(
    context: TableContext, base: BaseTable, registry: RegionRegistry
) -> tuple[RegionView, ...]:
    regions = registry.regions(base)
    states = map_remote(context.store.remote, RegionReader.unflushed, regions)
    return tuple(
        _region(reader.name, state, base) for reader, state in zip(regions, states, strict=True)
    )


def _recorded(context: TableContext, base: BaseTable) -> tuple[RegionView, ...] | None:
    manifests = recorded_regions(context, base)
    if manifests is None:
        return None
    names = [
        region_name(manifest.region_id, values_in_order(manifest, base.info))
        for manifest in manifests
    ]
    views = (
        _region(name, Unflushed(manifest, Tail()), base)
        for name, manifest in zip(names, manifests, strict=True)
    )
    return tuple(sorted(views, key=lambda region: region.name))


def _region(name: str, state: Unflushed, base: BaseTable) -> RegionView:
    manifest = state.manifest
    merged = base.details.merged_generations.get(manifest.region_id, 0)
    stored = (
        GenerationView(
            generation.generation,
            "merged" if generation.generation <= merged else "flushed",
            generation.rows,
            generation.bytes,
        )
        for generation in manifest.flushed_generations
    )
    in_memory = (
        GenerationView(memtable.generation, "memtable", memtable.rows, memtable.nbytes)
        for memtable in state.memtables
        if memtable.rows
    )
    return RegionView(
        region_id=str(manifest.region_id),
        name=name,
        status=manifest.status.name.lower(),
        writer_epoch=manifest.writer_epoch,
        merged_generation=merged,
        current_generation=manifest.current_generation,
        flushed_position=manifest.replay_after_wal_entry_position,
        log_position=max(state.tail.end, manifest.replay_after_wal_entry_position),
        generations=(*stored, *in_memory),
    )
