"""Rows in memory that plans hand over: the same rows and counts as the nodes themselves yield."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext

import memwal_native
import memwal_sql as mw
from exec_nodes.deduplicate_exec import DeduplicateExec
from exec_nodes.node import Node

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("val", pa.float64()),
        pa.field("name", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), 3)),
        pa.field("flag", pa.bool_()),
    ]
)
KEYS = 400
CONDITIONS = (
    "val > 0.5",
    "val <= 0.25 AND flag",
    "name = 'n3'",
    "name IN ('n1', 'n5') OR val IS NULL",
    "NOT flag",
    "id BETWEEN 100 AND 150",
    "id BETWEEN 100 AND 115",
    "id > 20 AND id <= 30 AND flag OR id = 24",
    "val > 2",
    "name LIKE 'n%' AND id > 20",
)
OUTPUTS = ("*", "id", "val, name", "count(*), sum(val)", "count(*)", "vec, flag", "name, min(id)")


def _rows(rng: Random, count: int) -> pa.Table:
    ids = rng.sample(range(KEYS), count)
    return pa.table(
        {
            "id": ids,
            "val": [None if rng.random() < 0.1 else rng.randrange(100) / 100 for _ in ids],
            "name": [None if rng.random() < 0.1 else f"n{rng.randrange(9)}" for _ in ids],
            "vec": [None if rng.random() < 0.1 else [rng.random()] * 3 for _ in ids],
            "flag": [rng.choice([True, False, None]) for _ in ids],
        },
        schema=SCHEMA,
    )


def _write(rng: Random, table: mw.Table, writer: mw.TableWriter) -> None:
    """Change the table in one of the ways that leave other sources, stale rows and fragments."""
    for _ in range(rng.randrange(1, 4)):
        writer.upsert(_rows(rng, rng.randrange(1, 60)))
        writer.delete(_rows(rng, rng.randrange(1, 10)).select(["id"]))
    if rng.random() < 0.4:
        writer.flush()
        if rng.random() < 0.6:
            table.merge()


def _query(rng: Random) -> str:
    output = rng.choice(OUTPUTS)
    query = f"SELECT {output} FROM t"
    if rng.random() < 0.7:
        query += f" WHERE {rng.choice(CONDITIONS)}"
    return query + (" GROUP BY name" if "min" in output else "")


def _counts(session: SessionContext, query: str) -> list[tuple[str, dict[str, int]]]:
    """The nodes of a plan with the rows that each has yielded and dropped."""
    plan = session.sql(f"EXPLAIN ANALYZE {query}").to_arrow_table()["plan"][0].as_py()
    nodes = []
    for line in plan.splitlines():
        if re.match(r" *(DeduplicateExec|UnionExec|ScanExec)", line):
            counts = re.findall(r"(output_rows|stale_rows)=([\d.]+)", line)
            nodes.append((line.split(", metrics=")[0], dict(counts)))
    return nodes


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[bool]]:
    """How often nodes have handed rows in memory over, and how often not."""
    kinds: Counter[bool] = Counter()
    original = DeduplicateExec.hand_over

    def counted(node: DeduplicateExec, partition: int) -> object:
        rows = original(node, partition)
        kinds[isinstance(rows, memwal_native.ResidentStream)] += 1
        return rows

    monkeypatch.setattr(DeduplicateExec, "hand_over", counted)
    yield kinds


@pytest.mark.parametrize("seed", range(4))
def test_native_streams_yield_and_count_what_nodes_do(
    tmp_path: Path, seed: int, handed_over: Counter[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    regions = rng.choice(["unsharded()", "bucket(id, 3)"])
    table = mw.create_table(str(tmp_path / "t"), SCHEMA, "id", regions=regions)
    session = SessionContext(SessionConfig().with_target_partitions(rng.choice([1, 2])))
    mw.register(session, "t", table)
    with table.writer() as writer:
        for _ in range(5):
            _write(rng, table, writer)
            # The first scan finds the base's stale rows, the second one keeps the columns.
            scans = [_sorted(session, "SELECT * FROM t") for _ in range(2)]
            with monkeypatch.context() as patch:
                patch.setattr(DeduplicateExec, "hand_over", Node.hand_over)
                assert scans == [_sorted(session, "SELECT * FROM t")] * 2
            for query in (_query(rng) for _ in range(6)):
                with monkeypatch.context() as patch:
                    patch.setattr(DeduplicateExec, "hand_over", Node.hand_over)
                    rows, counts = _sorted(session, query), _counts(session, query)
                assert _sorted(session, query) == rows, query
                assert _counts(session, query) == counts, query
    assert handed_over[True] > 4 * handed_over[False]


def _sorted(session: SessionContext, query: str) -> list[str]:
    rows = session.sql(query).to_arrow_table().to_pylist()
    return sorted(str({name: _rounded(value) for name, value in row.items()}) for row in rows)


def _rounded(value: object) -> object:
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize("limit", [0, 1, 7, 1000])
def test_a_limit_ends_the_stream(tmp_path: Path, limit: int, handed_over: Counter[bool]) -> None:
    table = mw.create_table(str(tmp_path / "t"), SCHEMA, "id")
    session = SessionContext()
    mw.register(session, "t", table)
    with table.writer() as writer:
        writer.upsert(_rows(Random(limit), 200))
        rows = session.sql(f"SELECT id FROM t LIMIT {limit}").to_arrow_table()
    assert len(set(rows["id"].to_pylist())) == min(limit, 200)
    assert handed_over[True] == (limit > 0)


def test_rows_of_a_slice_come_in_one_batch(tmp_path: Path) -> None:
    table = mw.create_table(str(tmp_path / "t"), SCHEMA, "id")
    session = SessionContext()
    mw.register(session, "t", table)
    names = pa.array(["x" * 1000] * KEYS)
    rows = _rows(Random(0), KEYS).set_column(2, "name", names)
    with table.writer() as writer:
        for start in (KEYS - 5, 0):
            writer.upsert(rows.slice(start, 5))
            batches = session.sql("SELECT name FROM t").collect()
            assert [batch.num_rows for batch in batches] == [5 if start else 10]
