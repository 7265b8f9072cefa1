"""Keys and regions: a key lives in one region, the one that its region spec says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.codes import KeyCodes
from exec_nodes.keys.hashing import hash_columns
from exec_nodes.keys.keys import key_column, one_array
from exec_nodes.lance.reading import batches_of, rows_of
from exec_nodes.lance.scan import row_bytes
from memwal_sql.errors import MemWalError
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.read.region import RegionReader
from memwal_sql.read.twins import is_emptied
from memwal_sql.state.base_table import BaseTable
from memwal_sql.storage.paths import generation_folder
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionStatus


def check_region_keys(state: CheckState) -> Iterator[Finding]:
    """Protocol rules 10 and 11; of regions given by hand the caller promises it, and this looks."""
    yield from _twins(state)
    unrouted: list[tuple[CheckedRegion, pa.Table]] = []
    for region in state.regions:
        for flushed in state.unmerged(region):
            look = partial(_of_generation, state, region, flushed, unrouted)
            yield from contained(look, generation_folder(region.region_id, flushed.path))
    yield from _in_several(unrouted)


def _of_generation(
    state: CheckState,
    region: CheckedRegion,
    flushed: FlushedGeneration,
    unrouted: list[tuple[CheckedRegion, pa.Table]],
) -> Iterator[Finding]:
    """Keys that belong elsewhere; those that no spec gives a region are put into `unrouted`."""
    keys = state.keys(region, flushed).table
    if region.spec is None or region.values is None or region.spec.is_manual:
        unrouted.append((region, keys))
        return
    wrong = misplaced(region, keys)
    if wrong:
        yield Finding(
            Severity.ERROR,
            f"generation {flushed.generation}: {wrong} and lookups miss them",
            generation_folder(region.region_id, flushed.path),
            "merge the generation, then upsert these keys again",
        )


def misplaced(region: CheckedRegion, keys: pa.Table) -> str | None:
    """Which keys belong to other regions than the one that they are in; None where the region spec
    does not say it of any."""
    if region.spec is None or region.values is None or region.spec.is_manual:
        return None
    distinct, index = region.spec.assign(keys)
    values = region.spec.values_of(distinct)
    wrong = np.isin(index, [i for i, one in enumerate(values) if one != region.values])
    if not wrong.any():
        return None
    row = int(np.flatnonzero(wrong)[0])
    return (
        f"{int(wrong.sum())} keys belong to other regions than {region.name}, such as "
        f"{_example(keys, row)}, which belongs to {values[index[row]]},"
    )


def _twins(state: CheckState) -> Iterator[Finding]:
    """Regions of the same values: nothing says which of their rows are newer."""
    first: dict[tuple[Any, ...], CheckedRegion] = {}
    for region in state.regions:
        if region.values is None or _is_emptied(state, region):
            continue
        values = (region.manifest.region_spec_id, *region.values.values())
        if values in first:
            yield Finding(
                Severity.ERROR,
                f"regions {first[values].region_id} and {region.region_id} both have the values "
                f"{region.values}: queries and writes are refused",
                region.folder,
                "write the rows of each region into a new table, the newer region last: "
                "docs/lancedb.md shows how",
            )
        first.setdefault(values, region)


def _is_emptied(state: CheckState, region: CheckedRegion) -> bool:
    """Whether a region is sealed and has no rows of its own left."""
    if region.manifest.status is RegionStatus.SEALED:
        with suppress(MemWalError):  # other checks say what; it may have rows
            return is_emptied(RegionReader(state.context, region.manifest, state.base), state.base)
    return False


def _in_several(keys: list[tuple[CheckedRegion, pa.Table]]) -> Iterator[Finding]:
    if len({region.region_id for region, _ in keys}) < 2:
        return
    regions = list({region.region_id: region for region, _ in keys}.values())
    number = {region.region_id: i for i, region in enumerate(regions)}
    table = pa.concat_tables([one for _, one in keys])
    owners = np.concatenate([np.full(t.num_rows, number[r.region_id]) for r, t in keys])
    codes = KeyCodes(one_array(key_column(table.columns))).codes
    # Of every key the first and the last region that has it.
    order = np.lexsort((owners, codes))
    starts = np.flatnonzero(np.r_[True, codes[order][1:] != codes[order][:-1]])
    ends = np.r_[starts[1:], len(order)] - 1
    lowest, highest = owners[order[starts]], owners[order[ends]]
    several = np.flatnonzero(lowest != highest)
    if len(several):
        row = int(order[starts[several[0]]])
        names = [regions[int(i)].name for i in (lowest[several[0]], highest[several[0]])]
        yield Finding(
            Severity.ERROR,
            f"{len(several)} keys are in more than one region, such as {_example(table, row)} in "
            f"{names}: either row may be returned, and merging may keep the older one",
            ", ".join(sorted(region.folder for region in regions)),
            "delete each of these keys in all regions but one, by writers of those regions",
        )


def _example(keys: pa.Table, row: int) -> Any:
    return keys.slice(row, 1).to_pylist()[0]


class KeysInMemory(Thresholds):
    """The keys of larger tables are compared in parts."""

    nbytes = 256 * 1024 * 1024


def check_base_keys(state: CheckState) -> Iterator[Finding]:
    """A key that is there twice is returned twice: there is no telling which row is newer."""
    repeated, example = 0, None
    for keys in _in_parts(state.base):
        if keys.num_rows < 2:
            continue
        codes = KeyCodes(one_array(key_column(keys.columns))).codes
        seen = np.bincount(codes)
        again = np.flatnonzero(seen[codes] > 1)
        if len(again):
            repeated += int((seen > 1).sum())
            example = example or keys.slice(int(again[0]), 1).to_pylist()[0]
    if repeated:
        yield Finding(
            Severity.ERROR,
            f"{repeated} keys are there more than once, such as {example}: plain Lance appended or "
            "inserted rows that were there",
            f"version {state.base.version} of the base table",
            "upsert the right row of each of these keys through a writer, flush it and merge: that "
            "row alone is left; or delete the wrong rows with Lance",
        )


def _in_parts(base: BaseTable) -> Iterator[pa.Table]:
    """All keys, in parts that fit into memory and have no key in common: the keys are read once
    for each part."""
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
