"""Checks of keys: each is in one region, the one that the region spec assigns, and once in the base
table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.codes import KeyCodes
from exec_nodes.keys.hashing import hash_columns
from exec_nodes.keys.keys import key_column, one_array
from exec_nodes.lance.reading import batches_of, rows_of
from exec_nodes.lance.scan import row_bytes
from memwal_sql.errors import MemWalError
from memwal_sql.maintain.checks.findings import Finding, Probe, error
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.read.region import RegionReader
from memwal_sql.read.twins import is_emptied
from memwal_sql.state.base_table import BaseTable
from memwal_sql.storage.paths import MEM_WAL_FOLDER, generation_folder
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionStatus

_MOST_EXAMPLES = 10


class KeysInMemory(Thresholds):
    """Limits for the keys that are compared at once; larger tables are compared in parts."""

    nbytes = 256 * 1024 * 1024


def check_region_keys(state: CheckState) -> Iterator[Finding | Probe]:
    """Protocol rules 10 and 11; for manual regions this checks what the caller promises."""
    if not state.has_own_index:
        return
    yield from _twins(state)
    unrouted: list[tuple[CheckedRegion, pa.Table]] = []
    for region in state.regions:
        for flushed in state.unmerged(region):
            folder = generation_folder(region.region_id, flushed.path)
            keys = _generation_keys(state, region, flushed, unrouted)
            yield Probe(f"generation {flushed.generation}", folder, keys)
    yield from _in_several(unrouted)


def _generation_keys(
    state: CheckState,
    region: CheckedRegion,
    flushed: FlushedGeneration,
    unrouted: list[tuple[CheckedRegion, pa.Table]],
) -> Iterator[Finding]:
    """Findings for keys in the wrong region; keys of manual regions are added to `unrouted`."""
    keys = state.keys(region, flushed).table
    wrong = misplaced(region, keys)
    if wrong:
        yield error(
            generation_folder(region.region_id, flushed.path),
            f"generation {flushed.generation}: {wrong} and lookups miss them",
            "merge the generation, then upsert these keys again",
        )
    elif wrong is None:
        unrouted.append((region, keys))


def misplaced(region: CheckedRegion, keys: pa.Table) -> str | None:
    """A text about keys that belong to other regions than theirs, "" if there are none; None
    without a region spec."""
    if region.spec is None or region.values is None or region.spec.is_manual:
        return None
    distinct, index = region.spec.assign(keys)
    values = region.spec.values_of(distinct)
    wrong = np.flatnonzero([values[place] != region.values for place in index])
    if not len(wrong):
        return ""
    row = int(wrong[0])
    return (
        f"{len(wrong)} keys belong to other regions than {region.name}, such as "
        f"{_example(keys, row)}, which belongs to {values[index[row]]},"
    )


def _twins(state: CheckState) -> Iterator[Finding]:
    """Findings for regions with the same values: nothing says which of their rows are newer."""
    first: dict[tuple[Any, ...], CheckedRegion] = {}
    for region in state.regions:
        if region.values is None or _is_emptied(state, region):
            continue
        values = (region.manifest.region_spec_id, *region.values.values())
        twin = first.setdefault(values, region)
        if twin is not region:
            yield error(
                region.folder,
                f"regions {twin.region_id} and {region.region_id} both have the values "
                f"{region.values}: queries and writes are refused",
                "write the rows of each region into a new table, the newer region last: "
                "docs/lancedb.md shows how",
            )


def _is_emptied(state: CheckState, region: CheckedRegion) -> bool:
    """Whether a region is sealed and has no rows of its own left."""
    if region.manifest.status is RegionStatus.SEALED:
        with suppress(MemWalError):  # other checks report it; the region may have rows
            return is_emptied(RegionReader(state.context, region.manifest, state.base), state.base)
    return False


def _in_several(unrouted: list[tuple[CheckedRegion, pa.Table]]) -> Iterator[Finding]:
    regions = list({region.region_id: region for region, _ in unrouted}.values())
    if len(regions) < 2:
        return
    table = pa.concat_tables([keys for _, keys in unrouted])
    owners = [np.full(keys.num_rows, regions.index(region)) for region, keys in unrouted]
    rows = pa.table({"code": _codes(table), "owner": np.concatenate(owners)})
    rows = rows.append_column("row", pa.array(np.arange(len(rows))))
    owned = rows.group_by("code").aggregate([("owner", "min"), ("owner", "max"), ("row", "min")])
    several = owned.filter(pc.not_equal(owned["owner_min"], owned["owner_max"])).to_pylist()
    if several:
        example = min(several, key=lambda row: int(row["row_min"]))
        names = [regions[example[owner]].name for owner in ("owner_min", "owner_max")]
        yield error(
            ", ".join(sorted(region.folder for region in regions)) or MEM_WAL_FOLDER,
            f"{len(several)} keys are in more than one region, such as "
            f"{_example(table, example['row_min'])} in {names}: either row may be returned, and "
            "merging may keep the older one",
            "delete each of these keys in all regions but one, by writers of those regions",
        )


def check_base_keys(state: CheckState) -> Iterator[Finding]:
    """A repeated key is returned repeatedly: nothing says which row is newer."""
    repeated, examples = 0, list[str]()
    for keys in _in_parts(state.base):
        if keys.num_rows < 2:
            continue
        codes = _codes(keys)
        counts = np.bincount(codes)
        again = np.flatnonzero(counts[codes] > 1)
        if len(again):
            repeated += int((counts > 1).sum())
            _, places = np.unique(codes[again], return_index=True)
            some = again[np.sort(places)][: _MOST_EXAMPLES - len(examples)]
            examples += [str(_example(keys, int(row))) for row in some]
    if repeated:
        yield error(
            f"version {state.base.version} of the base table",
            f"{repeated} keys occur more than once, such as {', '.join(examples)}: plain Lance "
            "appended or inserted existing rows",
            "upsert the right row of each of these keys through a writer, flush it and merge: only "
            "that row is left then; or delete the wrong rows with Lance",
        )


def _in_parts(base: BaseTable) -> Iterator[pa.Table]:
    """All keys, in parts that fit into memory and share no key; each part reads the keys once."""
    names = list(base.info.primary_key)
    fields = pa.schema([base.info.schema.field(name) for name in names])
    parts = max(1, math.ceil(base.source.rows * row_bytes(fields) / KeysInMemory.nbytes))
    for part in range(parts):
        scanner = base.dataset.scanner(columns=names)
        if parts == 1:
            yield rows_of(scanner)
            return
        batches = (
            batch.filter(pa.array(hash_columns(batch.columns) % parts == part))
            for batch in batches_of(scanner)
        )
        yield pa.Table.from_batches(batches, scanner.projected_schema)


def _codes(keys: pa.Table) -> Any:
    return KeyCodes(one_array(key_column(keys.columns))).codes


def _example(keys: pa.Table, row: int) -> Any:
    return keys.slice(row, 1).to_pylist()[0]
