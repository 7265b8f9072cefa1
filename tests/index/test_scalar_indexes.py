"""Filters by a scalar index of the base table find the live rows, wherever these are."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.index.create import SCALAR_KINDS

SCHEMA = pa.schema({"id": pa.int64(), "k": pa.int64()})
CONDITIONS = {
    "k = 3": lambda k: k == 3,
    "k IN (1, 4)": lambda k: k in (1, 4),
    "k > 5": lambda k: k > 5,
    "k >= 2 AND k < 4": lambda k: 2 <= k < 4,
    "NOT (k = 3)": lambda k: k != 3,
}


@pytest.mark.parametrize("kind", SCALAR_KINDS)
def test_a_scalar_index_changes_no_answer(kind: str, tmp_path: Path) -> None:
    live = {i: i % 9 for i in range(300)}
    rows = pa.table({"id": list(live), "k": list(live.values())}, schema=SCHEMA)
    lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=100)
    table = mw.enable(tmp_path / "t", primary_key="id")
    table.create_index("k", kind)

    def check() -> None:
        for condition, holds in CONDITIONS.items():
            found = sorted(table.to_arrow(["id"], condition)["id"].to_pylist())
            assert found == [i for i, k in sorted(live.items()) if holds(k)], condition

    check()
    with table.writer() as writer:
        for shift in (1, 2):
            new = {i: (i + shift) % 9 for i in range(shift, 400, 7)}
            writer.upsert({"id": list(new), "k": list(new.values())})
            live.update(new)
            gone = list(range(shift, 300, 31))
            writer.delete(gone)
            for key in gone:
                live.pop(key, None)
            check()
            writer.flush()
            table.merge()
            check()
            assert "k_idx" in table.build_indexes()
            check()
    (about,) = (row for row in table.indexes().to_pylist() if row["name"] == "k_idx")
    assert not about["maintained"]
