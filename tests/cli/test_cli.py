"""The command `memwal`: what it prints, in both forms, and its exit codes."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

import memwal_sql as mw
from memwal_sql.cli import app as application
from memwal_sql.cli import output as output_module
from memwal_sql.cli import tail as tail_module
from memwal_sql.cli.app import app
from memwal_sql.cli.exit_codes import ExitCode, exit_code_of
from memwal_sql.legacy.format import OlderMemWal
from memwal_sql.storage import paths
from tests.cli.calls import as_json, call, failing
from tests.docs.pages import page
from tests.model.pairs import SCHEMA, rows
from tests.model.writing import flush_rows, upsert_rows
from tests.soak import usual
from tests.storage.older import entry_range, make_older, mem_wal


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """Two regions; generation 1 flushed in both, two rows in the WAL."""
    table = mw.create_table(
        str(tmp_path / "table"), SCHEMA, primary_key="id", regions=[mw.bucket("id", 2)]
    )
    with table.writer() as writer:
        writer.upsert(rows(*((i, i) for i in range(10))))
        writer.flush()
        writer.upsert(rows((1, 100)))
        writer.delete(pa.table({"id": [2]}))
    return table


def test_info_draws_the_tree_and_tells_machines_the_same(table: Any) -> None:
    text = call("info", table.uri)
    assert "format version 2, storage version 2." in text
    assert table.uri in text and "id_bucket=0" in text and "2 generations to merge" in text
    found = as_json("info", table.uri)
    assert found["primary_key"] == ["id"] and found["rows"] == 0
    assert sum(g["rows"] for r in found["regions"] for g in r["generations"]) == 12


def test_lists_of_regions_generations_and_wal_entries(table: Any) -> None:
    regions = as_json("regions", table.uri)
    assert [one["region"] for one in regions] == ["id_bucket=0", "id_bucket=1"]
    assert {one["state"] for one in as_json("generations", table.uri)} == {"flushed", "memtable"}
    entries = as_json("wal", table.uri)
    assert sum(one["num_rows"] for one in entries) == 12
    assert as_json("wal", table.uri, "--limit", 1) == entries[-1:]
    for command in ("regions", "generations", "wal"):
        lines = call(command, table.uri).splitlines()
        assert "region" in lines[0] and len(lines) > 2
    listed = [line.split() for line in call("regions", table.uri).splitlines()]
    assert listed[0] == ["region", "status", "epoch", "merged", "to", "merge", "unflushed"]
    assert [line[:5] for line in listed[1:]] == [
        [f"id_bucket={n}", "active", "1", "0", "1"] for n in range(2)
    ]
    assert sum(int(line[5]) for line in listed[1:]) == 2
    assert max(map(len, call("regions", table.uri).splitlines())) <= 80


def test_an_empty_table_has_empty_lists(tmp_path: Path) -> None:
    uri = mw.create_table(str(tmp_path / "t"), SCHEMA, primary_key="id").uri
    for command in ("regions", "generations", "wal", "gc", "checkpoint"):
        assert as_json(command, uri) == []
        assert call(command, uri) == ""


def test_sql_prints_rows(table: Any) -> None:
    query = "SELECT id, n FROM t WHERE n >= 9 ORDER BY id"
    assert call("sql", table.uri, query).split() == ["id", "n", "1", "100", "9", "9"]
    assert as_json("sql", table.uri, query) == [{"id": 1, "n": 100}, {"id": 9, "n": 9}]
    result = CliRunner().invoke(app, ["sql", table.uri, "SELECT * FROM t", "--max-rows", "2"])
    assert len(result.stdout.splitlines()) == 3
    assert "only the first 2 rows: --max-rows shows more" in result.stderr
    nothing = "SELECT * FROM t WHERE id < 0"
    assert call("sql", table.uri, nothing) == ""
    assert CliRunner().invoke(app, ["sql", table.uri, nothing]).stderr == "no rows\n"
    assert as_json("sql", table.uri, "SELECT * FROM t WHERE id < 0") == []
    assert as_json("sql", table.uri, "SELECT count(*) AS c FROM t$regions") == [{"c": 2}]
    assert as_json(
        "sql", table.uri, "SELECT count(*) AS c FROM t", "--consistency", "manifest"
    ) == [{"c": 10}]
    assert call("sql", table.uri, "INSERT INTO t VALUES (77, 7)").split() == ["count", "1"]
    assert table.get(77).num_rows == 1


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE x AS SELECT * FROM t", "CREATE VIEW x AS SELECT 1", "DROP TABLE t"],
)
def test_a_statement_without_a_result_is_done(table: Any, statement: str) -> None:
    result = CliRunner().invoke(app, ["sql", table.uri, statement])
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "done, in a session that ends with this command\n"
    assert as_json("sql", table.uri, statement) == []


def test_sql_reads_the_past(table: Any) -> None:
    as_json("checkpoint", table.uri, "before")
    version = as_json("snapshot", table.uri)["version"]
    flush_rows(table, rows((500, 1)))
    count = "SELECT count(*) AS c FROM t"
    assert as_json("sql", table.uri, count) == [{"c": 10}]
    assert as_json("sql", table.uri, count, "--version", version) == [{"c": 10}]
    assert as_json("sql", table.uri, count, "--checkpoint", "before") == [{"c": 9}]
    assert as_json("info", table.uri, "--version", version)["version"] == version


def test_values_that_json_has_no_word_for(table: Any) -> None:
    query = (
        "SELECT arrow_cast('2026-01-02', 'Date32') AS d, x'0a0b' AS b, 'NaN'::double AS f,"
        " [1, 2] AS l, NULL AS n"
    )
    assert as_json("sql", table.uri, query) == [
        {"d": "2026-01-02", "b": "0a0b", "f": None, "l": [1, 2], "n": None}
    ]
    assert "2026-01-02 0a0b nan [1, 2]" in " ".join(call("sql", table.uri, query).split())


def test_a_wrong_query_is_a_wrong_call(table: Any) -> None:
    text = failing("sql", table.uri, "SELECT nothing FROM t", code=ExitCode.CALL)
    assert "nothing" in text and "Traceback" not in text
    failing("sql", table.uri, "SELEC", code=ExitCode.CALL)
    failing("sql", table.uri, "SELECT 1", "--consistency", "weak", code=ExitCode.CALL)
    text = failing("sql", table.uri, "INSERT INTO t VALUES (NULL, 1)", code=ExitCode.CALL)
    assert "NULL in its key column 'id'" in text


def test_explain_shows_the_plan(table: Any) -> None:
    assert "ScanExec" in call("explain", table.uri, "SELECT * FROM t")
    assert "output_rows" in call("explain", table.uri, "SELECT * FROM t", "--analyze")
    plans = as_json("explain", table.uri, "SELECT * FROM t WHERE id = 1")
    assert any("TakeLastExec" in one["plan"] for one in plans)


def test_jobs_do_their_work_and_say_what(table: Any) -> None:
    assert as_json("merge", table.uri) == {"generations_merged": 2}
    assert call("merge", table.uri) == "0 generations merged\n"
    assert "id_idx" in as_json("index", table.uri)["indexes"]
    assert call("index", table.uri) == "all indexes are up to date\n"
    assert as_json("compact", table.uri)["fragments"] == 0
    assert call("compact", table.uri, "--dry-run") == "0 fragments to compact\n"
    failing("compact", table.uri, "--deleted", 2, code=ExitCode.CALL)
    assert call("snapshot", table.uri).startswith("recorded in version ")
    assert mw.open_table(table.uri).overview().rows == 10


def test_a_merge_of_one_region(table: Any) -> None:
    assert as_json("merge", table.uri, "--region", "id_bucket=1") == {"generations_merged": 1}
    text = failing("merge", table.uri, "--region", "x", code=ExitCode.CALL)
    assert "no regions ['x']" in text
    failing("index", table.uri, "--name", "x", code=ExitCode.CALL)


def test_garbage_is_only_listed_without_delete(table: Any) -> None:
    call("merge", table.uri)
    call("index", table.uri)
    arguments = ("gc", table.uri, "--older-than", "0s")
    listed = as_json(*arguments)
    assert listed and as_json(*arguments) == listed
    text = CliRunner().invoke(app, list(arguments))
    assert "to be deleted: --delete does it" in text.stderr
    deleted = as_json(*arguments, "--delete")
    assert {one["path"] for one in deleted} >= {one["path"] for one in listed}
    assert len(as_json(*arguments)) < len(listed)
    assert mw.open_table(table.uri).scan().read_all().num_rows == 9


def test_checkpoints_are_made_listed_and_dropped(table: Any) -> None:
    assert as_json("checkpoint", table.uri, "a")["name"] == "a"
    assert call("checkpoint", table.uri, "b", "--expires", "1d12h").startswith("b holds version")
    listed = as_json("checkpoint", table.uri)
    assert [one["name"] for one in listed] == ["a", "b"]
    assert listed[0]["expires"] is None and listed[1]["expires"] is not None
    call("checkpoint", table.uri, "a", "--drop")
    call("checkpoint", table.uri, "again")
    assert as_json("checkpoint", table.uri, "again", "--drop") == {"name": "again", "dropped": True}
    assert [one["name"] for one in as_json("checkpoint", table.uri)] == ["b"]
    assert "name the checkpoint" in failing("checkpoint", table.uri, "--drop", code=ExitCode.CALL)


def test_check_has_an_exit_code_for_what_it_finds(table: Any) -> None:
    assert as_json("check", table.uri)["ok"] is True
    assert "checks" in call("check", table.uri)
    folder = sorted(Path(table.uri).glob("_mem_wal/*/*_gen_1/_versions"))[0]
    for file in folder.iterdir():
        file.unlink()
    found = as_json("check", table.uri, code=ExitCode.FINDINGS)
    assert found["ok"] is False
    assert any(one["severity"] == "error" for one in found["findings"])
    assert "ERROR" in call("check", table.uri, code=ExitCode.FINDINGS)
    text = failing("sql", table.uri, "SELECT * FROM t", code=ExitCode.REPAIR)
    assert "RepairError" in text and "table.check()" in text


def test_the_loop_runs_all_jobs(table: Any) -> None:
    lines = call("run", table.uri, "--once", "--output", "json").splitlines()
    jobs = [json.loads(one)["job"] for one in lines]
    assert jobs == ["flush", "merge", "index", "compact", "snapshot", "gc"]
    text = call("run", table.uri, "--rounds", 2, "--interval", 0, "--merge-generations", 1)
    assert "index: " in text and "gc: " in text


def test_a_job_that_is_left_undone_shows_in_the_exit_code(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [mw.RetryError("others were faster")]
    merge = mw.Table.merge

    def once_late(self: Any, *arguments: Any) -> int:
        if failures:
            raise failures.pop()
        return merge(self, *arguments)

    monkeypatch.setattr(mw.Table, "merge", once_late)
    text = failing("run", table.uri, "--once", code=ExitCode.RETRY)
    assert "merge was not done: others were faster" in text
    failures.append(mw.RetryError("again"))
    rounds = ("--rounds", 2, "--interval", 0, "--merge-generations", 1)
    assert "merge: 3 generations merged" in call("run", table.uri, *rounds)


def test_the_tail_prints_changes_and_goes_on(table: Any, tmp_path: Path) -> None:
    places = tmp_path / "places.json"
    lines = call("tail", table.uri, "--offsets", places).splitlines()
    assert len(lines) == 12
    assert any(re.fullmatch(r"[0-9a-f]{8} \d+\.2 upsert id=1 n=100", line) for line in lines)
    assert any(re.fullmatch(r"[0-9a-f]{8} \d+\.2 delete id=2", line) for line in lines)
    old = call("tail", table.uri, "--old-rows").splitlines()
    assert any(re.fullmatch(r".* upsert id=1 n=100 _before: id=1 n=1", line) for line in old), old
    upsert_rows(table, rows((7, 8)))
    new = call("tail", table.uri, "--offsets", places, "--output", "json").splitlines()
    assert [json.loads(one)["id"] for one in new] == [7]
    assert call("tail", table.uri, "--offsets", places) == ""
    ends = json.dumps(table.change_offsets())
    assert call("tail", table.uri, "--after", ends) == ""
    region = ("--region", "id_bucket=0", "--offsets", places)
    assert call("tail", table.uri, *region) == ""
    one = call("tail", table.uri, "--region", "id_bucket=0", "--column", "id", "--after", 0)
    assert 0 < len(one.splitlines()) < 13 and "n=" not in one


def test_a_followed_tail_shows_what_comes_later(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(100, 200))

    def write_instead(seconds: float) -> None:
        assert seconds == 1.0
        upsert_rows(table, rows((next(numbers), 1)))

    monkeypatch.setattr(tail_module.time, "sleep", write_instead)
    lines = call("tail", table.uri, "--follow", "--looks", 4).splitlines()
    assert [line.split()[-2] for line in lines] == ["id=100", "id=101", "id=102"]


def test_long_work_draws_bars_for_people_only(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=True, width=100)
    monkeypatch.setattr(output_module, "stderr", lambda: console)
    call("merge", table.uri, "--region", "id_bucket=0", "--output", "json")
    assert drawn.getvalue() == ""
    assert call("merge", table.uri) == "1 generation merged\n"
    assert "merge id_bucket=1" in drawn.getvalue() and "rows" in drawn.getvalue()


def test_bad_places_are_wrong_calls_and_gaps_are_told(table: Any) -> None:
    assert "is not a place" in failing("tail", table.uri, "--after", "{", code=ExitCode.CALL)
    failing("tail", table.uri, "--region", "x", code=ExitCode.CALL)
    for file in Path(table.uri).glob("_mem_wal/*/wal/*"):
        if paths.numbered(file.name, paths.WAL_SUFFIX) == 2:
            file.unlink()
    text = failing("tail", table.uri, code=ExitCode.REOPEN)
    assert "ChangesCollectedError" in text


MEM_WALS = [
    mem_wal("r", 1, "MERGED", entry_range(0, 5)),
    mem_wal("r", 2, "OPEN", entry_range(5, 1)),
]


def read_wal(one: OlderMemWal) -> list[pa.Table]:
    """For `--read-wal`."""
    return [rows((one.generation, 50))]


PRICES = Path(__file__).parent.parent.parent / "docs/assets/prices.toml"


def test_the_older_format_is_shown_and_upgraded(tmp_path: Path) -> None:
    uri = str(tmp_path / "older")
    make_older(uri, rows((1, 1)), MEM_WALS)
    shown = as_json("info", uri)
    assert shown["format"] == "older"
    assert [(one["state"], one["wal_ranges"]) for one in shown["mem_wals"]] == [
        ("merged", [[0, 4]]),
        ("open", [[5, 5]]),
    ]
    prices = failing("info", uri, "--prices", PRICES, code=ExitCode.CALL)
    assert "--prices needs a table of today's format" in prices
    assert "owner-of-r" in call("info", uri) and "0-4" in call("info", uri)
    assert "memwal upgrade" in failing("regions", uri, code=ExitCode.CALL)
    keys = ("--primary-key", "id")
    text = failing("upgrade", uri, *keys, code=ExitCode.CALL)
    assert "would lose" in text and "generation 2 (open): WAL entries 5" in text
    for wrong in ("nothing:x", "json:nothing", "json", "sys:path"):
        failing("upgrade", uri, *keys, "--read-wal", wrong, code=ExitCode.CALL)
    reader = f"{__name__}:read_wal"
    done = as_json("upgrade", uri, *keys, "--read-wal", reader, "--region-by", "bucket(id, 4)")
    assert done["uri"] == uri
    assert as_json("sql", uri, "SELECT * FROM t ORDER BY id") == [
        {"id": 1, "n": 1},
        {"id": 2, "n": 50},
    ]
    assert "bucket(id, 4)" in call("info", uri)


def test_an_upgrade_to_regions_given_by_hand(tmp_path: Path) -> None:
    uri = str(tmp_path / "older")
    make_older(uri, rows((1, 1)), MEM_WALS[:1])
    wrong = ("upgrade", uri, "--primary-key", "id", "--region-by", "bucket(n, 4)")
    assert "primary key" in failing(*wrong, code=ExitCode.CALL)
    call("upgrade", uri, "--primary-key", "id", "--region-by", "manual")
    assert mw.open_table(uri).overview().region_specs == ()


def test_every_kind_of_error_has_its_code() -> None:
    codes = {
        mw.InvalidCallError: 2,
        mw.UnsupportedError: 2,
        mw.StoreUnavailableError: 3,
        mw.FencedError: 4,
        mw.CorruptFileError: 5,
        mw.MemWalError: 70,
    }
    assert {kind: exit_code_of(kind("x")) for kind in codes} == codes


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (mw.RepairError("torn"), 5),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
        (KeyError("bug"), 70),
    ],
)
def test_what_a_command_raises_becomes_an_exit_code(
    table: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def broken(self: Any) -> None:
        raise error

    monkeypatch.setattr(mw.Table, "overview", broken)
    text = failing("info", table.uri, code=code)
    assert ("Traceback" in text) == (code == ExitCode.BUG)


def test_a_place_without_a_table_and_bad_options(tmp_path: Path, table: Any) -> None:
    assert "is not a Lance table" in failing("info", tmp_path / "nothing", code=ExitCode.CALL)
    lance.write_dataset(rows((1, 1)), str(tmp_path / "plain"))
    assert "memwal_sql.enable" in failing("info", tmp_path / "plain", code=ExitCode.CALL)
    text = failing("info", table.uri, "-o", "secret", code=ExitCode.CALL)
    assert "write it as KEY=VALUE" in text
    failing("info", table.uri, "--output", "xml", code=2)
    failing("nothing", code=2)


def test_storage_options_reach_the_store(tmp_path: Path) -> None:
    log = tmp_path / "log.sqlite"
    options = {"memwal_commit_log": str(log)}
    uri = mw.create_table(
        str(tmp_path / "t"), SCHEMA, primary_key="id", storage_options=options
    ).uri
    assert "commit log" in failing("info", uri, code=ExitCode.CALL)
    assert as_json("info", uri, "--storage-option", f"memwal_commit_log={log}")["rows"] == 0


MANUAL = page("docs/command-line.md")


def command_names() -> list[str]:
    commands = application.app.registered_commands
    return [c.callback.__name__.replace("_", "-") for c in commands if c.callback]


def test_the_manual_has_every_exit_code_and_every_command() -> None:
    (codes,) = re.findall(r"\| exit code \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", MANUAL)
    named = {int(n) for row in codes.splitlines() for n in re.findall(r"\d+", row.split("|")[1])}
    assert named == {code.value for code in ExitCode}
    (commands,) = re.findall(r"\| command \| what it does \|\n\|---\|---\|\n((?:\|.*\n)+)", MANUAL)
    listed = re.findall(r"`([\w-]+)`", "".join(row.split("|")[1] for row in commands.splitlines()))
    assert sorted(listed) == sorted(command_names())


def test_help_names_every_command() -> None:
    text = call("--help")
    for name in command_names():
        assert name in text
        assert call(name, "--help")


def test_ctrl_c_ends_the_script_of_the_package_without_a_trace(table: Any) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["memwal"].partition(":")
    code = (
        f"import os, signal, sys; from {module} import {function}\n"
        "left = [sys.argv.pop()]\n"
        "def hook(event, args):\n"
        "    if event in ('import', 'open') and left and str(args[0]).startswith(left[0]):\n"
        "        left.pop(); os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.addaudithook(hook); {function}()\n"
    )
    query = ["sql", table.uri, "SELECT count(*) AS c FROM t"]
    calls = [(table.uri, query), ("pyarrow", query), (table.uri, ["merge", table.uri])]
    for interrupted, arguments in usual(calls, 1):
        command = [sys.executable, "-c", code, *arguments, interrupted]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        outcome = (finished.returncode, finished.stdout, finished.stderr)
        assert outcome == (130, "", ""), (interrupted, arguments)
    command = [sys.executable, "-c", code, *query, "nothing"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout.split(), finished.stderr) == (0, ["c", "9"], "")


@pytest.mark.parametrize(("command", "gives_way"), [("merge", True), ("sql", False)])
def test_jobs_give_way_and_queries_do_not(
    monkeypatch: pytest.MonkeyPatch, command: str, gives_way: bool
) -> None:
    done: list[str] = []
    monkeypatch.setattr(application, "give_way", lambda: done.append("gives way"))
    monkeypatch.setattr(application, "app", lambda: done.append("runs"))
    monkeypatch.setattr(sys, "argv", ["memwal", command, "table"])
    application.main()
    assert done == (["gives way", "runs"] if gives_way else ["runs"])
