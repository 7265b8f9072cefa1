"""Tables of texts in several sources, and what one index over their live rows finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid5

import lance
import pyarrow as pa
from lance.query import MatchQuery

from exec_nodes.base.columns import TOMBSTONE_FIELD, Filter
from exec_nodes.base.index_info import IndexInfo
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.source import Source
from exec_nodes.text.query.tree import Match, TextExpression
from planner.model import RegionSources, Snapshot, TableInfo
from planner.search.full_text import TextQuery, plan_full_text_search
from tests.exec_nodes.tables import SPACE, collect, flushed, memtable_of
from tests.model.ranking import LanceRanking, Ranking

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("body", pa.string()),
        pa.field("title", pa.string()),
        pa.field("n", pa.int64()),
    ]
)
STORED = SCHEMA.append(TOMBSTONE_FIELD)
INFO = TableInfo(SCHEMA, ("id",))
WORDS = [f"word{number}" for number in range(40)] + ["the", "running"]
QUERIES = ["word0", "word1 word2", "word3 word3 word30", "running the word39", "the", "", "absent"]

# A row's text, or a delete.
Texts = Mapping[int, str | None]
DELETED = "\0deleted"


def some_text(random: Random) -> str | None:
    """Null, empty, stop words only or some words, the first ones often."""
    kind = random.random()
    if kind < 0.15:
        return random.choice([None, "", "the of"])
    return " ".join(
        WORDS[min(41, int(random.expovariate(0.15)))] for _ in range(random.randint(1, 12))
    )


def some_texts(random: Random, ids: Sequence[int], deletes: float = 0.0) -> dict[int, str | None]:
    return {i: DELETED if random.random() < deletes else some_text(random) for i in ids}


def stored(texts: Sequence[tuple[int, str | None]]) -> pa.Table:
    """The rows of a MemTable or a generation."""
    ids = [number for number, _ in texts]
    bodies = [None if text == DELETED else text for _, text in texts]
    columns = [
        ids,
        bodies,
        bodies[::-1],
        [i % 5 for i in ids],
        [text == DELETED for _, text in texts],
    ]
    return pa.table(columns, schema=STORED)


def indexed(dataset: Any, parameters: Mapping[str, Any] | None) -> Any:
    """The dataset with a full-text index on `body`; None: without one."""
    if parameters is not None:
        dataset.create_scalar_index("body", "INVERTED", name="body_idx", **parameters)
    return lance.dataset(dataset.uri)


def base_of(dataset: Any) -> LanceSource:
    return LanceSource.base(dataset, INFO, etag=f"{dataset.version}", resident=ResidentStore())


def base_table(
    folder: Path, texts: Texts, parameters: Mapping[str, Any] | None = None, **options: Any
) -> LanceSource:
    rows = stored(list(texts.items())).drop(["_tombstone"])
    return base_of(indexed(lance.write_dataset(rows, folder, **options), parameters))


def generation(
    folder: Path, texts: Texts, number: int, parameters: Mapping[str, Any] | None = None
) -> LanceSource:
    rows = stored(list(texts.items()))
    indexed(lance.write_dataset(rows, folder), parameters)
    return flushed(folder, rows, number, "a", INFO)


def memtable(texts: Sequence[tuple[int, str | None]], number: int) -> Source:
    return memtable_of(stored(texts), number, "a", 7)


def snapshot(
    base: Source | None, newest_first: Sequence[Source], indexes: Sequence[IndexInfo] = ()
) -> Snapshot:
    region = RegionSources(uuid5(SPACE, "a"), "a", 1, None, tuple(newest_first))
    return Snapshot(INFO, base, (region,), indexes=tuple(indexes))


def body_index(parameters: Mapping[str, object] | None = None) -> IndexInfo:
    return IndexInfo("body_idx", "body", "INVERTED", parameters=parameters or {})


def merged(*oldest_first: Texts) -> dict[int, str | None]:
    """The live rows of sources."""
    rows: dict[int, str | None] = {}
    for texts in oldest_first:
        rows.update(texts)
    return {number: text for number, text in rows.items() if text != DELETED}


def search(
    found: Snapshot,
    query: TextExpression | str,
    k: int = 10,
    filters: Sequence[Filter] = (),
) -> Ranking:
    """Scores by id, the best first."""
    expression = Match(query, "body") if isinstance(query, str) else query
    plan = plan_full_text_search(TextQuery(expression, k, ("id",), tuple(filters)), found)
    rows = collect(plan)
    return dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))


class Oracle:
    """One Lance index over the live rows of a table."""

    def __init__(
        self, live: Mapping[int, str | None], parameters: Mapping[str, Any] | None = None
    ) -> None:
        columns = [list(live), list(live.values())]
        rows = pa.table(columns, schema=pa.schema([SCHEMA.field("id"), SCHEMA.field("body")]))
        self._index = LanceRanking(rows, {"body": parameters or {}})

    def search(self, query: str) -> Ranking:
        """All rows that match."""
        return self._index.search(MatchQuery(query, "body"))
