"""How much work a run does: the sizes of the goals, and small ones that only show it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Row, key and round counts.

    Attributes:
        base_rows: rows of the base table.
        source_rows: rows upserted into each of the four generations and the MemTable.
        rounds: rounds of a work of ten milliseconds or more.
        lookups: single keys looked up.
        batch_keys: keys of one large `get`.
        appends: durable writes of `append_rows` rows.
        append_rows: rows of one durable write.
        mixed_upserts: durable writes of `append_rows` rows, with queries between them.
        replaced_rows: rows of a table of which a tenth is replaced.
        stream_rows: rows of the sustained write, in batches of `stream_batch`.
        many_rows: rows of a table that is large for live rows.
        tail_lookups: lookups there of which the slowest are looked at.
        generation_counts: into how many generations the same upserts are divided.
        memory_rows: rows of the table whose streaming is watched.
        written_bytes: of rows whose writing is watched.
        regions: regions of the table that is opened.
        first_gets: how many processes get a key, of ours and of Lance each.
        cold_starts: how many processes open it from each source.
        merge_rows: rows of each generation that is merged.
        merges: how often they are merged.
        busy_seconds: how long reads are timed beside a process that merges.
        text_rows: documents of the base table that is searched.
        text_upserts: rows of a MemTable with text and vectors.
        flush_rows: rows of one that is flushed.
        vector_rows: vectors of the base table that is searched.
        vector_queries: different vectors that are searched for.
        turn_seconds: how long several processes write.
        short_programs: how many programs insert a row.
        settle_seconds: how long background work is waited for before searches are timed.
    """

    base_rows: int = 1_000_000
    source_rows: int = 40_000
    rounds: int = 25
    lookups: int = 1_000
    batch_keys: int = 10_000
    appends: int = 200
    append_rows: int = 1_000
    mixed_upserts: int = 100
    replaced_rows: int = 10_000_000
    stream_rows: int = 2_000_000
    stream_batch: int = 10_000
    many_rows: int = 50_000_000
    tail_lookups: int = 10_000
    generation_counts: tuple[int, ...] = (1, 4, 16, 64)
    memory_rows: int = 10_000_000
    written_bytes: int = 1_000_000_000
    regions: int = 1_000
    first_gets: int = 16
    cold_starts: int = 3
    merge_rows: int = 100_000
    merges: int = 4
    busy_seconds: float = 6.0
    text_rows: int = 1_000_000
    text_upserts: int = 80_000
    flush_rows: int = 100_000
    vector_rows: int = 200_000
    vector_queries: int = 40
    turn_seconds: float = 10.0
    short_programs: int = 50
    settle_seconds: float = 2.0


FULL = Sizes()
SMALL = Sizes(
    base_rows=5_000,
    source_rows=200,
    rounds=1,
    lookups=5,
    batch_keys=100,
    appends=3,
    append_rows=50,
    mixed_upserts=20,
    replaced_rows=5_000,
    stream_rows=4_000,
    stream_batch=500,
    many_rows=20_000,
    tail_lookups=20,
    generation_counts=(1, 4),
    memory_rows=20_000,
    written_bytes=4_000_000,
    regions=8,
    first_gets=1,
    cold_starts=1,
    merge_rows=300,
    merges=1,
    busy_seconds=0.3,
    text_rows=1_000,
    text_upserts=2_000,
    flush_rows=2_000,
    vector_rows=2_000,
    vector_queries=2,
    turn_seconds=3.0,
    short_programs=2,
    settle_seconds=0.0,
)
