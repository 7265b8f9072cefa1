"""EXPLAIN shows the search plans of specification 2, "Vector Search Queries" and "Full-Text Search
Queries", and they give what the same query gives over one table with the live rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import background_by
from tests.model.resident import another_store, never
from tests.plans.golden import Case, cases_in, check_plan, physical_plan

CASES = cases_in(Path(__file__).parent / "search")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("val", pa.int64()),
        pa.field("txt", pa.string()),
        pa.field("v", pa.list_(pa.float32(), 2)),
    ]
)


class Setting:
    """Region A: generation 1 flushed, 2 in memory. Region B: 1 and 2 flushed, 3 in memory, as in
    specification 2, "Query Execution"; and beside it the live rows in a table of their own."""

    def __init__(self, folder: Path) -> None:
        self._rng = Random(3)
        self._rows: dict[str, dict[str, Any]] = {}
        seeds = self._written(*(f"{r}{i}" for r in "ABC" for i in range(6)))
        uri = str(folder / "t")
        lance.write_dataset(seeds, uri)
        table = mw.enable(uri, primary_key="id", regions=[mw.truncate("id", 1, name="region")])
        table.create_index("v", "IVF_FLAT", num_partitions=2)
        table.create_index("txt", "FTS")
        self.writer = table.writer()
        self.writer.upsert(self._written("B1", "B7"))
        self.writer.flush()
        self.writer.upsert(self._written("A1", "B2"))
        self.writer.delete(["B7"])
        del self._rows["B7"]
        self.writer.flush()
        self.writer.upsert(self._written("A2", "B1", "A8"))
        self.writer.delete(["A3"])
        del self._rows["A3"]
        live = str(folder / "live")
        lance.write_dataset(pa.Table.from_pylist(list(self._rows.values()), SCHEMA), live)
        self.mounted = self._session(table)
        self.merged = self._session(mw.enable(live, primary_key="id"))

    def _written(self, *keys: str) -> pa.Table:
        for key in keys:
            self._rows[key] = {
                "id": key,
                "val": self._rng.randrange(13),
                "txt": " ".join(self._rng.choices(("tree", "log", "write", "the"), k=4)),
                "v": [self._rng.uniform(-1, 1), self._rng.uniform(-1, 1)],
            }
        return pa.Table.from_pylist([self._rows[key] for key in keys], SCHEMA)

    @staticmethod
    def _session(table: mw.Table) -> mw.SessionContext:
        session = mw.SessionContext(datafusion.SessionConfig().with_target_partitions(2))
        mw.register(session, "t", table)
        mw.register(session, "approximate", table, approximate=True)
        session.sql("SELECT * FROM t").collect()  # stale sets are known, counts exact
        return session


@pytest.fixture(autouse=True)
def no_vectors_in_memory() -> Iterator[None]:
    """Plans would show when they have come there."""
    with another_store(), background_by(never):
        yield


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    made = Setting(tmp_path_factory.mktemp("search_plans"))
    yield made
    made.writer.close()


@pytest.mark.parametrize(
    ("path", "number", "case"), CASES, ids=[f"{path.stem}-{number}" for path, number, _ in CASES]
)
def test_plan_is_the_golden_one_and_gives_what_one_table_gives(
    setting: Setting, path: Path, number: int, case: Case
) -> None:
    check_plan(path, number, physical_plan(setting.mounted, case.sql))
    found = setting.mounted.sql(case.sql).to_arrow_table()
    expected = setting.merged.sql(case.sql).to_arrow_table()
    assert found.num_rows == expected.num_rows > 0
    # Equal scores may be cut anywhere, so that the rows are compared where there are none.
    every = path.stem in ("vector_search", "order_by_distance")
    names = [n for n in found.schema.names if n.startswith("_") or every]
    for name in names:
        ours, theirs = (sorted(t[name].to_pylist(), key=repr) for t in (found, expected))
        floats = pa.types.is_floating(found.schema.field(name).type)
        assert ours == (pytest.approx(theirs, abs=3e-6) if floats else theirs)
