"""Marks of merges in several passes (protocol rule 20).

Lance accepts a progress mark only if it is greater than the recorded one, atomically with the
data. A region's own mark says which generation is whole in the base table; beside it every merge
commit marks a *pass shard*, which stands for the region under a derived id, with a token that
grows from pass to pass. So a merger that slept through somebody else's pass is refused, and a
reader knows that a version holds a part of a generation. Generations that are merged together have
the token of the first of them: of two mergers that begin with the same generation, wherever they
end, one is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID, uuid5

MergeProgress = Mapping[UUID, int]
"""The last generation that is merged, by region, and the last token by pass shard."""

_PASS_BITS = 20
LAST_PASS = (1 << _PASS_BITS) - 1
_PASS_SHARD_UUID_VERSION = 5


def pass_shard(region_id: UUID) -> UUID:
    """The id under which a region's passes are marked."""
    return uuid5(region_id, "pass")


def regions_in(progress: MergeProgress) -> dict[UUID, int]:
    """The marks of regions, without those of pass shards.

    A pass shard's id has version 5, as those of LanceDB's regions have. It follows from a region
    that is marked too, or, while the region's first generation is merged, the mark is a token;
    and nobody merges in passes into a pass shard.
    """
    derived = {pass_shard(shard) for shard in progress}
    return {
        shard: mark
        for shard, mark in progress.items()
        if not (
            shard in derived
            or (
                shard.version == _PASS_SHARD_UUID_VERSION
                and mark > LAST_PASS
                and pass_shard(shard) not in progress
            )
        )
    }


def token(generation: int, number: int) -> int:
    """The mark of pass `number` (from 1) of a generation, or of those from it on that are merged
    together; the last one is `LAST_PASS`."""
    return generation << _PASS_BITS | number


def passes_done(progress: MergeProgress, region_id: UUID, generation: int) -> int:
    """The number of the last pass of `generation` that was committed; 0 when there was none."""
    marked = progress.get(pass_shard(region_id), 0)
    return marked & LAST_PASS if marked >> _PASS_BITS == generation else 0


def partial_generation(progress: MergeProgress, region_id: UUID) -> int | None:
    """The generation of which the base table holds a part, if any.

    Such a version is right only together with that generation, which hides the part.
    """
    generation = progress.get(pass_shard(region_id), 0) >> _PASS_BITS
    return generation if generation > progress.get(region_id, 0) else None


def unknown_partial(progress: MergeProgress, open_regions: Iterable[UUID]) -> bool:
    """Whether a region other than the `open_regions` ones has a partly merged generation.

    A pass shard does not tell its region: the one whose first generation is merged has no mark yet.
    """
    regions = regions_in(progress)
    whole = {pass_shard(region) for region in open_regions}
    whole |= {
        pass_shard(region) for region in regions if partial_generation(progress, region) is None
    }
    return any(shard not in regions and shard not in whole for shard in progress)
