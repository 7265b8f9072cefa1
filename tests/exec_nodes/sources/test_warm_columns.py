from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.sources import warm_columns
from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.lance_source import LanceSource
from planner.model import TableInfo

ROWS = 4000


def source(path: Path, cache: ByteCache) -> LanceSource:
    names = [f"name {i}" for i in range(ROWS)]
    rows = pa.table({"id": np.arange(ROWS), "name": names, "n": np.arange(ROWS) * 2})
    lance.write_dataset(rows, path / "t", max_rows_per_file=1500).delete("id % 7 = 0")
    lance.dataset(path / "t").optimize.compact_files(target_rows_per_fragment=2500)
    info = TableInfo(rows.schema, ("id",))
    return LanceSource.base(lance.dataset(path / "t"), info, etag="", cache=cache)


def test_columns_are_read_whole_once_fetching_their_rows_has_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_columns, "_BYTES_PER_FETCH", ROWS * 8 + 1)
    cache = ByteCache()
    base = source(tmp_path, cache)
    held = np.random.default_rng(1).permutation(base.matching(()))[:40]
    first = base.rows_at(held, ["name", "id"])
    in_memory = []
    for _ in range(6):
        before = cache.nbytes
        assert base.rows_at(held, ["name", "id"]).equals(first)
        in_memory.append(cache.nbytes > before or bool(before))
    assert in_memory == sorted(in_memory)
    assert in_memory[0] is False
    assert in_memory[-1] is True
    monkeypatch.setattr(lance.LanceDataset, "_take_rows", None)
    assert base.rows_at(held, ["id", "name"]).equals(first.select(["id", "name"]))
    column, addresses = base.column("n")
    assert addresses.tolist() == base.matching(()).tolist()
    ids = base.rows_at(addresses, ["id"])["id"].to_numpy()
    assert column.to_pylist() == (ids * 2).tolist()


def test_columns_that_would_not_fit_are_never_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_columns, "_BYTES_PER_FETCH", 1 << 40)
    cache = ByteCache(ROWS * 8 * 4)
    base = source(tmp_path, cache)
    held = base.matching(())[:20]
    for _ in range(3):
        base.rows_at(held, ["name", "id"])
    assert cache.nbytes == 0
