"""Keys and regions: a key lives in one region, the one that its region spec says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.kernels.key_codes import KeyCodes
from exec_nodes.kernels.keys import key_column, one_array
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.maintain.findings import Finding, Severity
from memwal_sql.storage.paths import generation_folder


def check_region_keys(state: CheckState) -> Iterator[Finding]:
    """Protocol rules 10 and 11; of regions given by hand the caller promises it, and this looks."""
    yield from _twins(state.regions)
    unrouted: list[tuple[CheckedRegion, pa.Table]] = []
    for region in state.regions:
        for flushed in state.unmerged(region):
            keys = state.keys(region, flushed).table
            if region.spec is None or region.values is None or region.spec.is_manual:
                unrouted.append((region, keys))
                continue
            distinct, index = region.spec.assign(keys)
            values = region.spec.values_of(distinct)
            wrong = np.isin(index, [i for i, one in enumerate(values) if one != region.values])
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                yield Finding(
                    Severity.ERROR,
                    f"{int(wrong.sum())} keys of generation {flushed.generation} belong to other "
                    f"regions than {region.name}, such as {_example(keys, row)}, which belongs to "
                    f"{values[index[row]]}: lookups miss them",
                    generation_folder(region.region_id, flushed.path),
                    "merge the generation, then upsert these keys again",
                )
    yield from _in_several(unrouted)


def _twins(regions: list[CheckedRegion]) -> Iterator[Finding]:
    """Regions of the same values: the keys of both are looked for in one of them only."""
    first: dict[tuple[Any, ...], CheckedRegion] = {}
    for region in regions:
        if region.values is None:
            continue
        values = (region.manifest.region_spec_id, *region.values.values())
        if values in first:
            yield Finding(
                Severity.ERROR,
                f"regions {first[values].region_id} and {region.region_id} both have the values "
                f"{region.values}",
                region.folder,
                "stop the writers of one of them, flush and merge both, the older one first",
            )
        first.setdefault(values, region)


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
