"""The past of a table and its files as tables: the rows of `name$history` and its siblings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from exec_nodes.base.interrupts import raise_interrupt
from exec_nodes.lance.errors import BASE_NAME, damaged, lance_errors
from memwal_sql.maintain.checkpoint.checkpoints import list_checkpoints
from memwal_sql.maintain.checkpoint.records import is_checkpoint_tag
from memwal_sql.read.registry import RegionRegistry
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.refs import tags_of
from memwal_sql.storage.base.versions import base_versions
from memwal_sql.storage.paths import region_folder

_TIME = pa.timestamp("ms", "UTC")
HISTORY = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("timestamp", _TIME, nullable=False),
        pa.field("operation", pa.string()),
        pa.field("base_rows", pa.int64()),
        pa.field("base_files", pa.int64()),
        pa.field("base_bytes", pa.int64()),
        pa.field("recorded_regions", pa.int64()),
        pa.field("tags", pa.list_(pa.string()), nullable=False),
    ]
)
SNAPSHOTS = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("created", _TIME),
        pa.field("expires", _TIME),
    ]
)
FILES = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("region_id", pa.string()),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("bytes", pa.int64()),
    ]
)
"""What kinds there are: `base`, `deletion` (of the fragment `number`), `generation`, `wal`."""


def tags_in(context: TableContext, dataset: Any) -> dict[str, Mapping[str, Any]]:
    """The tags that users have made, by name, without those of checkpoints."""
    return {
        name: tag
        for name, tag in sorted(tags_of(context.store, dataset).items())
        if not is_checkpoint_tag(name)
    }


def history(context: TableContext, base: BaseTable) -> pa.Table:
    """One row per existing base version, ascending."""
    tags: dict[int, list[str]] = {}
    for name, tag in tags_in(context, base.dataset).items():
        tags.setdefault(tag["version"], []).append(name)
    versions = base_versions(context.store, context.scope)  # names the file that is damaged
    with lance_errors(BASE_NAME, context.uri):
        try:
            summaries = base.dataset.versions()
        except RuntimeError as error:
            raise_interrupt(error)
            raise damaged(BASE_NAME, context.uri, error) from error
    counts = {version["version"]: version["metadata"] for version in summaries}

    def rows() -> Iterator[dict[str, Any]]:
        for base_version in versions:
            summary = counts.get(base_version.version, {})
            recorded = (
                base_version.details
                if base_version.details and base_version.details.snapshot_ts_millis
                else None
            )
            yield {
                "version": base_version.version,
                "timestamp": round(base_version.timestamp * 1000),
                "operation": base_version.operation,
                "base_rows": _number(summary.get("total_rows")),
                "base_files": _number(summary.get("total_data_files")),
                "base_bytes": _number(summary.get("total_files_size")),
                "recorded_regions": None if recorded is None else recorded.num_regions,
                "tags": tags.get(base_version.version, []),
            }

    return pa.Table.from_pylist(list(rows()), HISTORY)


def snapshots(context: TableContext, base: BaseTable) -> pa.Table:
    """One row per name of a past state, checkpoints first."""
    checkpoints = [
        {
            "name": checkpoint["name"],
            "kind": "checkpoint",
            "version": checkpoint["base_version"],
            "created": checkpoint["created"],
            "expires": checkpoint["expires"],
        }
        for checkpoint in list_checkpoints(context).to_pylist()
        if not checkpoint["expired"]
    ]
    tags = [
        {
            "name": name,
            "kind": "tag",
            "version": tag["version"],
            "created": tag.get("created_at"),
            "expires": None,
        }
        for name, tag in tags_in(context, base.dataset).items()
    ]
    return pa.Table.from_pylist(checkpoints + tags, SNAPSHOTS)


def files(context: TableContext, base: BaseTable, registry: RegionRegistry) -> pa.Table:
    """One row per file that holds current rows: data and deletions of the base table, unmerged
    generations with their indexes, and unflushed log entries."""

    def rows() -> Iterator[dict[str, Any]]:
        for fragment in base.dataset.get_fragments():
            metadata = fragment.metadata
            for file in metadata.files:
                path, size = f"data/{file.path}", file.file_size_bytes
                yield {"kind": "base", "number": metadata.id, "path": path, "bytes": size}
            if metadata.deletion_file is not None:
                path = metadata.deletion_file.path(metadata.id)
                yield {"kind": "deletion", "number": metadata.id, "path": path, "bytes": None}
        for region in registry.regions(base):
            manifest, region_id = region.refresh(), str(region.region_id)
            merged = base.details.merged_generations.get(region.region_id, 0)
            for generation in manifest.flushed_generations:
                if generation.generation <= merged:
                    continue
                folder = f"{region_folder(region.region_id)}/{generation.path}"
                for listed in sorted(
                    context.store.list(folder), key=lambda file_meta: file_meta.path
                ):
                    yield {
                        "kind": "generation",
                        "region_id": region_id,
                        "number": generation.generation,
                        "path": listed.path,
                        "bytes": listed.size,
                    }
            log, flushed = (
                context.wal(region.region_id),
                manifest.replay_after_wal_entry_position,
            )
            for position in log.positions():
                if position > flushed:
                    path = log.path(position)
                    yield {"kind": "wal", "region_id": region_id, "number": position, "path": path}

    return pa.Table.from_pylist(list(rows()), FILES)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
