"""Small sources for the tests of nodes and plans, and a dict that says what they add up to."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import lance
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.base.columns import TOMBSTONE_FIELD
from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.keys.hash_index import KeyIndex
from exec_nodes.keys.hashing import hash_columns
from exec_nodes.lance.fragments import fragment_identity
from exec_nodes.node import Node
from exec_nodes.resident.columns import FragmentColumns
from exec_nodes.resident.keys import KeyLookups
from exec_nodes.resident.rows import ResidentRows
from exec_nodes.resident.runs import ResidentRuns
from exec_nodes.resident.store import STORE, Key, ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source
from planner.model import RegionSources, Snapshot, TableInfo
from planner.predicates.condition import Condition

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("val", pa.int64()), pa.field("s", pa.string())]
)
STORED = SCHEMA.append(TOMBSTONE_FIELD)
INFO = TableInfo(SCHEMA, ("id",))
SPACE = UUID("12345678-1234-5678-1234-567812345678")
DELETED = None

# One write: a key and its value, or DELETED.
Write = tuple[int, int | None]


def stored(writes: Sequence[Write]) -> pa.Table:
    """The rows of a MemTable or generation for these writes, in order."""
    ids, values = [w[0] for w in writes], [w[1] for w in writes]
    texts = [None if v is None else f"text {v}" for v in values]
    return pa.table([ids, values, texts, [v is None for v in values]], schema=STORED)


def memtable(
    writes: Sequence[Write], generation: int, region: str = "a", batch: int = 3
) -> MemTableSource:
    """A MemTable of these writes, appended in batches of `batch` rows."""
    return memtable_of(stored(writes), generation, region, batch)


def memtable_of(
    rows: pa.Table, generation: int, region: str, batch: int, kind: Any = MemTableSource
) -> Any:
    """A MemTable of rows whose key is `id`, as a source of this kind."""
    index, batches = KeyIndex(), rows.to_batches(max_chunksize=batch)
    for piece in batches:
        index.append([piece["id"]])
    return kind(
        identity=object(),
        region=region,
        generation=generation,
        primary_key=("id",),
        batches=batches,
        rows=rows.num_rows,
        index=index,
        schema=rows.schema,
    )


class MemoryBase(MemTableSource):
    """A base table in memory."""

    @property
    def name(self) -> str:
        return "base_table[gen=-1]"


def memory_base(writes: Sequence[Write]) -> MemoryBase:
    """A base table with one row a key."""
    rows = stored(list(dict(writes).items()))
    return memtable_of(rows, -1, "", max(1, rows.num_rows), MemoryBase)


def lance_base(path: Path, writes: Sequence[Write], **options: Any) -> LanceSource:
    """A base table on disk, with a btree on its key."""
    dataset = lance.write_dataset(stored(writes).drop(["_tombstone"]), path / "base", **options)
    dataset.create_scalar_index("id", "BTREE")
    return LanceSource.base(dataset, INFO, etag="tag", resident=ResidentStore())


def lance_generation(
    path: Path, writes: Sequence[Write], generation: int, region: str = "a"
) -> LanceSource:
    """A flushed generation on disk with its bloom filter."""
    rows, folder = stored(writes), path / f"{region}_gen_{generation}"
    lance.write_dataset(rows, folder)
    return flushed(folder, rows, generation, region, INFO)


def flushed(
    folder: Path, rows: pa.Table, generation: int, region: str, info: TableInfo
) -> LanceSource:
    """The generation that is in a folder, with a bloom filter of the keys of its rows."""
    bloom = BloomFilter.build(hash_columns([rows["id"]])).data
    return LanceSource.flushed(
        str(folder),
        region=region,
        generation=generation,
        info=info,
        resident=ResidentStore(),
        bloom=lambda: bloom,
    )


def snapshot(base: Source | None, *regions: Sequence[Source], info: TableInfo = INFO) -> Snapshot:
    """A snapshot of regions, each given newest first."""
    return Snapshot(
        info,
        base,
        tuple(
            RegionSources(uuid5(SPACE, str(i)), f"{i}", 1, None, tuple(sources))
            for i, sources in enumerate(regions)
        ),
    )


def where(column: str, op: str, value: Any) -> Condition:
    """A comparison that Lance takes too."""
    compare = {
        ">": pc.greater,
        "<": pc.less,
        "=": pc.equal,
        "!=": pc.not_equal,
    }[op]
    literal = f"'{value}'" if isinstance(value, str) else value
    text = f"{column} {op} {literal}"
    return Condition(text, lambda b: compare(b[column], value), (column,), text)


OPERATORS = {">": operator.gt, "<": operator.lt, "=": operator.eq, "!=": operator.ne}


def collect(node: Node) -> pa.Table:
    """All partitions of a node, executed in parallel."""

    def run(partition: int) -> list[pa.RecordBatch]:
        return list(node.execute(partition))

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(run, range(node.partitions)))
    return pa.Table.from_batches([b for part in parts for b in part], node.schema)


def nodes(plan: Node) -> list[Node]:
    """Every node of a plan, parents first."""
    return [plan, *(node for child in plan.children for node in nodes(child))]


def pairs(node: Node) -> list[tuple[int, int]]:
    """The (id, val) rows of a node, sorted."""
    table = collect(node)
    return sorted(zip(table["id"].to_pylist(), table["val"].to_pylist(), strict=True))


def newest(base: Sequence[Write], *regions: Sequence[Sequence[Write]]) -> dict[int, int]:
    """What a table with these writes holds; each region's generations oldest first."""
    rows: dict[int, int | None] = dict(base)
    for region in regions:
        for generation in region:
            rows.update(generation)
    return {key: value for key, value in rows.items() if value is not None}


@dataclass(frozen=True)
class Rows(Node):
    """A leaf that yields given batches and notes its executions, and the numbers of the batches
    that it was asked for; it fails where it must not run."""

    batches: tuple[pa.RecordBatch, ...]
    kind: pa.Schema
    forbidden: bool = False
    executed: list[int] = field(default_factory=list, compare=False)
    asked: list[int] = field(default_factory=list, compare=False)

    @property
    def schema(self) -> pa.Schema:
        return self.kind

    def label(self) -> str:
        return "Rows"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        if self.forbidden:
            raise AssertionError("this input must not be executed")
        self.executed.append(partition)
        for number, batch in enumerate(self.batches):
            self.asked.append(number)
            yield batch


def resident_rows(dataset: lance.LanceDataset) -> ResidentRows:
    """Takes rows of a version of any table one by one."""
    columns = FragmentColumns(dataset.uri, dataset, STORE)
    return ResidentRows(columns, dataset.count_rows())


def key_lookups(dataset: lance.LanceDataset, store: ResidentStore) -> KeyLookups:
    """Looks rows of a version of any table up by `id`, its first column."""
    fragments = {fragment_identity(dataset.uri, one): one for one in dataset.get_fragments()}
    runs = ResidentRuns[Any](store, Key("key places", (dataset.uri,), 0), fragments)
    return KeyLookups(dataset.schema.field("id"), runs, dataset, resident_rows(dataset))
