"""`table.scan(filter=...)` means what WHERE means, whether or not DataFusion runs it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import InvalidCallError

_EXACT = ["val > 2", "id IN (1, 5) OR val = 4", "name LIKE 'n%' AND val < 5", "NOT (val = 3)"]
_LEFT_TO_DATAFUSION = ["true", "1 = 2", "abs(val - 3) < 2 AND val > 0", "random() >= 0"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mw.Table:
    folder: Path = tmp_path_factory.mktemp("filtered") / "t"
    schema = pa.schema([("id", pa.int64()), ("val", pa.float64()), ("name", pa.string())])
    table = mw.create_table(folder, schema, primary_key="id")
    rows = [{"id": i, "val": float(i), "name": f"n{i}"} for i in range(8)]
    with table.writer() as writer:
        writer.upsert(rows[:6])
        writer.flush()
        writer.upsert([*rows[6:], {"id": 1, "val": None, "name": None}])
    return table


@pytest.mark.parametrize("condition", _EXACT + _LEFT_TO_DATAFUSION)
def test_it_returns_the_rows_that_where_keeps(table: mw.Table, condition: str) -> None:
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    expected = context.sql(f"SELECT id, name FROM t WHERE {condition}").to_arrow_table()
    found = table.scan(["id", "name"], filter=condition).read_all()
    assert found.sort_by("id").to_pylist() == expected.sort_by("id").to_pylist()
    assert table.scan(["id"], filter=condition, limit=2).read_all().num_rows == min(
        2, len(expected)
    )


@pytest.mark.parametrize("condition", _EXACT)
def test_what_every_source_applies_exactly_needs_no_physical_plan(
    table: mw.Table, condition: str
) -> None:
    with patch.object(datafusion.DataFrame, "execute_stream", side_effect=AssertionError):
        table.scan(filter=condition).read_all()


def test_a_condition_is_planned_anew_each_time_as_it_may_speak_of_now(table: mw.Table) -> None:
    assert table.scan(filter="now() > TIMESTAMP '2020-01-01T00:00:00'").read_all().num_rows == 8
    with pytest.raises(InvalidCallError, match="nothing_of_that_name"):
        table.scan(filter="nothing_of_that_name = 1")
