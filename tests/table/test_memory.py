"""One budget for what a process keeps of all tables, and a look at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.resident.store import STORE
from memwal_sql.cli.exit_codes import ExitCode
from tests.cli.calls import failing
from tests.model.writing import flush_rows, merge_rows
from tests.program import run

ROWS = 2_000


@pytest.fixture
def table(tmp_path: Path) -> Iterator[mw.Table]:
    columns = pa.schema({"id": pa.int64(), "text": pa.string(), "v": pa.list_(pa.float32(), 4)})
    found = mw.create_table(tmp_path / "t", columns, "id")
    rows = {
        "id": list(range(ROWS)),
        "text": [f"word{number % 7}" for number in range(ROWS)],
        "v": [[float(number), 0.0, 0.0, 1.0] for number in range(ROWS)],
    }
    merge_rows(found, rows)
    flush_rows(found, {name: values[:100] for name, values in rows.items()})
    yield found


@pytest.fixture
def own_budget() -> Iterator[None]:
    before = STORE.max_bytes
    yield
    STORE.max_bytes = before


def answers(table: mw.Table) -> list[object]:
    return [
        table.count_rows(),
        sorted(table.scan(columns=["id"]).read_all()["id"].to_pylist()),
        table.get([7, ROWS - 1])["text"].to_pylist(),
        table.full_text_search("text", "word3", 3, columns=["id"]).num_rows,
        table.vector_search("v", [7.0, 0.0, 0.0, 1.0], 1)["id"].to_pylist(),
    ]


@pytest.mark.usefixtures("own_budget")
def test_answers_are_the_same_with_any_budget(table: mw.Table) -> None:
    mw.configure(memory="1GiB")
    expected = answers(table)
    for budget in (0, 1_000, 100_000, "1 GiB"):
        mw.configure(memory=budget)
        for _ in range(3):
            assert answers(table) == expected
        assert sum(mw.resident()["bytes"].to_pylist()) <= STORE.max_bytes
    mw.configure(memory=0)
    assert sum(mw.resident()["entries"].to_pylist()) == 0


def test_what_is_resident_is_listed_by_kind(table: mw.Table) -> None:
    for _ in range(2):
        answers(table)
    found = {row["kind"]: row for row in mw.resident().to_pylist()}
    for kind in ("keys", "stale rows", "column", "vectors", "texts"):
        assert found[kind]["entries"] > 0 and found[kind]["hits"] > 0, found


def test_the_command_line_and_the_environment_set_it(table: mw.Table) -> None:
    query = ("sql", table.uri, "SELECT count(*) AS n FROM t", "--output", "csv")
    memwal = ("-m", "memwal_sql")
    for found in (
        run(*memwal, "--memory", "1MiB", *query),
        run(*memwal, *query, env={"MEMWAL_MEMORY": "0"}),
    ):
        assert found.returncode == 0 and found.stdout.split() == ['"n"', str(ROWS)], found.stderr
    assert "memory must be" in failing("--memory", "much", *query, code=ExitCode.CALL)
    found = run(*memwal, *query, env={"MEMWAL_MEMORY": "much"})
    assert found.returncode == ExitCode.CALL
    assert "memory must be" in found.stderr and "MEMWAL_MEMORY" in found.stderr
