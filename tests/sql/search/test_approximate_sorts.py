"""ORDER BY a distance of tables that are registered with `approximate=True` asks the index."""

from __future__ import annotations

from pathlib import Path

import datafusion
import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.vectors.index_search import ALL_PROBES, IndexUse
from tests.model.resident import another_store

ROWS, DIMENSION = 600, 8


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_with_every_partition_it_is_what_the_exact_sort_gives(
    tmp_path: Path, kind: pa.DataType
) -> None:
    rng = np.random.default_rng(3)

    def rows(ids: np.ndarray) -> pa.Table:
        values = pa.array(rng.normal(size=len(ids) * DIMENSION)).cast(kind, safe=False)
        vectors = pa.FixedSizeListArray.from_arrays(values, DIMENSION)
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", vectors.type)])
        return pa.table([pa.array(ids), vectors], schema)

    folder = tmp_path / "t"
    lance.write_dataset(rows(np.arange(ROWS)), folder)
    lance.dataset(folder).create_index("v", "IVF_FLAT", num_partitions=4)
    table = mw.enable(folder, primary_key="id")
    context = mw.SessionContext()
    settings = IndexUse.set(few_least=0, few_most=0, probes=ALL_PROBES)
    with table.writer() as writer, another_store(0), settings:
        writer.upsert(rows(rng.permutation(ROWS)[:100]))
        mw.register(context, "exact", table)
        mw.register(context, "t", table, approximate=True)
        for limit in (5, ROWS + 10):
            q = rng.normal(size=DIMENSION).tolist()
            query = f"SELECT id FROM {{}} ORDER BY array_distance(v, {q}), id LIMIT {limit}"
            found = context.sql(f"EXPLAIN ANALYZE {query.format('t')}").to_pydict()["plan"][0]
            assert "order=approximate, index=v_idx(IVF_FLAT)" in found
            answers = [context.sql(query.format(name)).to_pydict() for name in ("t", "exact")]
            assert answers[0] == answers[1]
            assert len(answers[0]["id"]) == min(limit, ROWS)
            if limit < ROWS:
                assert "searched_by_index=1" in found


def test_a_statement_and_a_changed_table_keep_the_setting(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 2))]
    )
    table = mw.create_table(tmp_path / "t", schema, primary_key="id")
    context = datafusion.SessionContext()
    mw.register(context, "t", table, approximate=True)
    near = "(SELECT id FROM t ORDER BY v <-> [1, 2] LIMIT 1)"
    twice = f"SELECT a.id FROM {near} a JOIN {near} b ON a.id = b.id"
    plan = mw.sql(context, twice).execution_plan().display_indent()
    assert plan.count("NearestExec") == plan.count("order=approximate") == 2
    mw.sql(context, "ALTER TABLE t ADD COLUMN n INT")
    plan = mw.sql(context, "SELECT n FROM t ORDER BY v <-> [1, 2] LIMIT 1").execution_plan()
    assert "order=approximate" in plan.display_indent()
