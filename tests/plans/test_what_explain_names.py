"""EXPLAIN names what runs: the index that a source has, who is asked, the version that is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datafusion
import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import background_by
from exec_nodes.liveness.masks import Matched
from tests.model.resident import another_store, never

WIDTH = 4
SCHEMA = pa.schema(
    {"id": pa.int64(), "body": pa.string(), "v": pa.list_(pa.float32(), WIDTH), "k": pa.int64()}
)
NEAREST = "SELECT id FROM vector_search('t', 'v', [0.1, 0.2, 0.3, 0.4], 3)"
WORDS = "SELECT id FROM full_text_search('t', 'body', 'word 1', 3)"


@pytest.fixture(autouse=True)
def vectors() -> Iterator[None]:
    """Nothing is in memory when a test begins, nor read in the background."""
    with another_store(), background_by(never):
        yield


def rows(start: int, count: int) -> pa.Table:
    values = np.random.default_rng(start).random(count * WIDTH, np.float32)
    ids = range(start, start + count)
    columns = [list(ids), [f"word {i % 5}" for i in ids]]
    vector = pa.FixedSizeListArray.from_arrays(values, WIDTH)
    return pa.table([*columns, vector, [i % 3 for i in ids]], schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    """Generation 1 was flushed before the indexes were made, 2 after; 3 is in memory."""
    lance.write_dataset(rows(0, 500), tmp_path / "t", max_rows_per_file=100)
    table = mw.enable(tmp_path / "t", primary_key="id")
    with table.writer() as writer:
        writer.upsert(rows(500, 10))
        writer.flush()
        table.create_index("v", "IVF_FLAT", num_partitions=4)
        table.create_index("body", "FTS")
        writer.upsert(rows(510, 10))
        writer.flush()
    return table


def session(table: mw.Table) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    return context


def plan(table: mw.Table, query: str, analyze: str = "") -> str:
    found = session(table).sql(f"EXPLAIN {analyze} {query}").to_pylist()
    return str(found[-1]["plan"])


def named(text: str, node: str, key: str) -> dict[str, str]:
    """What nodes print for a key, by generation."""
    lines = [line for line in text.splitlines() if node in line]
    found = {}
    for line in lines:
        (generation,) = re.findall(r"gen=(-?\d+)", line)
        (value,) = re.findall(rf" {key}=([^,\]]*), filter", line)
        found[generation] = value
    return found


def test_an_index_is_named_for_the_sources_that_have_it(table: mw.Table) -> None:
    for indexed in (True, False):
        with table.writer(indexed=indexed, durable=False) as writer:
            writer.upsert(rows(520, 10))
            in_memory = "in_memory" if indexed else "tokenized"
            assert named(plan(table, NEAREST), "KNNExec", "index") == {
                "-1": "v_idx(IVF_FLAT)",
                "1": "brute_force",
                "2": "v_idx(IVF_FLAT)",
                "3": "brute_force",
            }
            assert named(plan(table, WORDS), "FTSExec", "index") == {
                "-1": "body_idx",
                "1": "tokenized",
                "2": "body_idx",
                "3": in_memory,
            }
            if not indexed:  # the search has done it
                session(table).sql(WORDS).collect()
                assert named(plan(table, WORDS), "FTSExec", "index")["3"] == "in_memory"
            writer.delete(rows(520, 10))


def test_an_index_that_is_not_asked_is_not_named(table: mw.Table, within: Any) -> None:
    exact = NEAREST.replace(", 3)", ", 3, {exact: true})")
    assert set(named(plan(table, exact), "KNNExec", "index").values()) == {"brute_force"}
    analyzed = plan(table, NEAREST, "ANALYZE")
    assert named(analyzed, "KNNExec", "index")["-1"] == "v_idx(IVF_FLAT)"
    within(background_by(lambda call: call()))
    for _ in range(2):
        session(table).sql(NEAREST).collect()
    analyzed = plan(table, NEAREST, "ANALYZE")
    assert named(analyzed, "KNNExec", "index")["-1"] == "in_memory"
    (base,) = (line for line in analyzed.splitlines() if "KNNExec: base" in line)
    assert "searched_in_memory=1" in base
    assert "searched_by_index" not in base


def test_explain_analyze_says_what_lance_reads(table: mw.Table) -> None:
    lines = plan(table, f"{NEAREST} WHERE k < 2", "ANALYZE").splitlines()
    (base,) = (line for line in lines if "KNNExec: base" in line)
    for metric in ("searched_by_index=", "lance_requests=", "lance_bytes=", "lance_fragments="):
        assert metric in base
    scan = plan(table, "SELECT id FROM t WHERE k = 2", "ANALYZE")
    (base,) = (line for line in scan.splitlines() if "ScanExec: base" in line)
    (fragments,) = re.findall(r"lance_fragments=(\d+)", base)
    assert int(fragments) == 5
    assert "lance_bytes=" in base


def test_partitions_that_are_probed_are_counted(tmp_path: Path) -> None:
    lance.write_dataset(rows(0, 5000), tmp_path / "t")
    table = mw.enable(tmp_path / "t", primary_key="id")
    table.create_index("v", "IVF_FLAT", num_partitions=8)
    for probes in (2, 5):
        query = NEAREST.replace(", 3)", f", 3, {{nprobes: {probes}}})")
        assert f"partitions_probed={probes}" in plan(table, query, "ANALYZE")


def test_the_base_version_that_is_read_is_named(table: mw.Table) -> None:
    queries = (NEAREST, WORDS, "SELECT * FROM t", "SELECT * FROM t WHERE id = 5")
    for _ in range(2):
        table.refresh()
        for query in queries:
            assert f"base_table[gen=-1], version={table.version}," in plan(table, query)
        table.merge()
    old = mw.open_table(table.uri, version=table.version)
    table.merge()
    assert f"version={old.version}," in plan(old, "SELECT * FROM t")


def asked(text: str) -> str:
    (found,) = re.findall(r"FilterStaleExec: asked=\[(.*)\]", text)
    return str(found)


def test_those_who_may_be_asked_about_candidates_are_named(table: mw.Table, within: Any) -> None:
    with table.writer(durable=False) as writer:
        writer.upsert(rows(495, 10))
        name = "unsharded=0"
        assert asked(plan(table, NEAREST)) == f"keys[region_{name}][gen=3]"
        assert asked(plan(table, WORDS)) == ""
        within(Matched.set(inline=100))
        every = [f"keys[region_{name}][gen=3]"] + [f"bf[region_{name}][gen={g}]" for g in (2, 1)]
        assert asked(plan(table, NEAREST)) == ", ".join(every)
        assert asked(plan(table, WORDS)) == ""
        guards = plan(table, "SELECT * FROM t WHERE id = 500")
        assert re.findall(r"BloomFilterGuardExec: (\S+?),", guards) == every
    searched = plan(table, WORDS, "ANALYZE")
    assert "bloom_hits" not in searched
    assert "bloom_skips" not in searched
