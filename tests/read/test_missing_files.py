"""Files that are gone for good are a RepairError for every reader, the first time it asks."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree

import datafusion
import lance
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import memwal_sql as mw
from memwal_sql.cli.app import app
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.maintain.checks.findings import Severity
from tests.soak import usual

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("s", pa.string()),
        pa.field("v", pa.list_(pa.float32(), 2)),
    ]
)
QUERY = "SELECT s, v FROM t WHERE length(s) > 0"

ERROR = Severity.ERROR

Read = Callable[[mw.Table], object]


def session(table: mw.Table) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    return context


def ctx_sql(table: mw.Table) -> object:
    context = session(table)
    with mw.memwal_errors():
        return context.sql(QUERY).to_arrow_table()


def mw_sql(table: mw.Table) -> object:
    context = session(table)
    return mw.sql(context, QUERY).to_pylist()


def nearest(table: mw.Table) -> object:
    context, query = (
        session(table),
        "SELECT id FROM t ORDER BY array_distance(v, [1.0, 2.0]) LIMIT 2",
    )
    return mw.sql(context, query).to_pylist()


def search_function(table: mw.Table) -> object:
    context, query = session(table), "SELECT s FROM vector_search('t', 'v', [1.0, 2.0], k => 2)"
    return mw.sql(context, query).to_pylist()


def command(table: mw.Table) -> object:
    result = CliRunner().invoke(app, ["sql", table.uri, QUERY])
    assert result.exit_code == ExitCode.REPAIR, result.output
    raise mw.RepairError(result.output)


READERS: dict[str, Read] = {
    "scan": lambda table: table.scan().read_all(),
    "to_arrow": lambda table: table.to_arrow(filter="length(s) > 0"),
    "count_rows": lambda table: table.count_rows("length(s) > 0"),
    "get": lambda table: table.get([0, 4], ["s", "v"]),
    "vector_search": lambda table: table.vector_search("v", [1.0, 2.0], k=2),
    "full_text_search": lambda table: table.full_text_search("s", "word", k=2),
    "ctx.sql": ctx_sql,
    "mw.sql": mw_sql,
    "ORDER BY distance": nearest,
    "vector_search()": search_function,
    "memwal sql": command,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with rows in the base, in a generation and in the log."""
    folder = tmp_path_factory.mktemp("whole") / "t"
    table = mw.create_table(folder, SCHEMA, "id")
    with table.writer() as writer:
        for first in (0, 3, 6):
            ids = range(first, first + 6)
            rows = {"id": ids, "s": [f"word {n}" for n in ids], "v": [[n, n] for n in ids]}
            writer.upsert(pa.table(rows, SCHEMA))
            if first < 6:
                writer.flush()
            if first < 3:
                table.merge()
    return folder


@pytest.mark.parametrize(
    "gone",
    [
        "data/*.lance",
        "_mem_wal/*/*_gen_2/data/*.lance",
        "_mem_wal/*/*_gen_2/_versions/*.manifest",
        "_mem_wal/*/*_gen_2",
    ],
)
def test_files_that_are_gone_for_good_are_damage_to_every_reader(
    folder: Path, tmp_path: Path, gone: str
) -> None:
    some = len(READERS) if gone.endswith(".lance") else 4
    for name, read in usual([*READERS.items()], some):
        copied = copytree(folder, tmp_path / name)
        table = mw.open_table(copied)
        found = list(copied.glob(gone))
        assert found
        for path in found:
            path.rename(tmp_path / f"{name} {path.name}")
        for _ in range(2):
            try:
                read(table)
            except Exception as error:
                assert isinstance(error, mw.RepairError), f"{name}: {error!r}"
            else:
                pytest.fail(f"{name} gave rows")


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_files_that_are_gone_or_cut_for_good_are_damage_to_every_job(
    folder: Path, tmp_path: Path, damage: str
) -> None:
    """Merges and builds of indexes said to run them again, for ever."""
    table = mw.open_table(copytree(folder, tmp_path / "t"))
    plain = pa.table({"id": [100], "s": ["word"], "v": [[1, 1]]}, SCHEMA)
    lance.write_dataset(plain, table.uri, mode="append")  # which the index of the key lacks
    for path in (tmp_path / "t").glob("data/*.lance"):
        if damage == "gone":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size // 2)
    table = mw.open_table(table.uri)
    jobs: dict[str, Callable[[], object]] = {
        "merge": table.merge,
        "build_indexes": table.build_indexes,
        "create_index": lambda: table.create_index("s", "FTS"),
        "run_all_jobs": lambda: mw.run_all_jobs(table, mw.Triggers(merge_generations=1)),
    }
    for job in jobs.values():
        with pytest.raises(mw.RepairError):
            job()


def test_an_index_of_the_base_that_is_gone_is_named_with_its_remedy(tmp_path: Path) -> None:
    """Queries that used it failed, and `check`, which the error names, found nothing."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    rows = {"id": range(5_000), "s": ["word"] * 5_000, "v": [[n, n] for n in range(5_000)]}
    with table.writer() as writer:
        writer.upsert(pa.table(rows, SCHEMA))
        writer.flush()
    table.merge()
    table.create_index("s", "FTS")
    assert table.check().of(ERROR) == ()
    for path in (tmp_path / "t" / "_indices").iterdir():
        rmtree(path)
    table = mw.open_table(table.uri)
    for _ in range(2):
        with pytest.raises(mw.RepairError, match=r"table\.check\(\)"):
            table.full_text_search("s", "word", k=2)
    findings = table.check().of(ERROR)
    assert len(findings) == 2 and {one.check for one in findings} == {"base indexes"}
    for finding in findings:
        _, _, call = finding.remedy.partition(": ")
        eval(call, {"table": table})
    assert table.check().of(ERROR) == ()
    assert table.full_text_search("s", "word", k=2).num_rows == 2


def test_files_that_were_merged_and_collected_meanwhile_are_asked_for_again(
    folder: Path, tmp_path: Path
) -> None:
    table = mw.open_table(copytree(folder, tmp_path / "t"))
    missing = table.snapshot().missing
    assert missing is not None
    error = mw.SourceGoneError("a file is gone")
    assert isinstance(missing(error), mw.RepairError)
    mw.open_table(table.uri).merge()
    assert missing(error) is error
