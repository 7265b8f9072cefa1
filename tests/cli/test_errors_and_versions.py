"""Errors for machines, versions, and what a call leaves on the machine of its user."""

from __future__ import annotations

import json
import os
import stat
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import memwal_sql as mw
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.cli.sinks import replaced_file
from tests.cli.calls import as_json, call, ended, failing
from tests.each import each
from tests.model.pairs import SCHEMA, rows
from tests.model.writing import flush_rows, upsert_rows
from tests.program import run
from tests.soak import usual
from tests.storage.older import entry_range, make_older, mem_wal


@pytest.fixture
def table(tmp_path: Path) -> Any:
    table = mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key="id")
    flush_rows(table, rows((1, 1)))
    return table


@each(
    "time", ["9" * 12 + "d", "9" * 40 + "w", "1d" + "9" * 30 + "s", "1y", "", "1", "-1h", "1h 2m"]
)
@each("command", [("checkpoint", "{table}", "c", "--expires"), ("gc", "{table}", "--older-than")])
def test_a_time_that_is_none_or_too_long_is_a_call_to_change(
    table: Any, command: tuple[str, ...], time: str
) -> None:
    *named, option = [one.format(table=table.uri) for one in command]
    assert f"{option} {time!r}" in failing(*named, f"{option}={time}", code=ExitCode.CALL)


def test_the_version_is_shown() -> None:
    text = call("--version")
    assert text.startswith(f"memwal {version('memwal-sql')} (Lance {version('pylance')}, ")


@each("form", [("--output", "json"), ("--output=json",)])
@each(
    "arguments, kind, code",
    [
        (("sql", "{uri}", "SELEC"), "InvalidCallError", ExitCode.CALL),
        (("info", "{uri}/nothing"), "InvalidCallError", ExitCode.CALL),
        (("info",), "InvalidCallError", ExitCode.CALL),
        (("gc", "{uri}", "--nothing"), "InvalidCallError", ExitCode.CALL),
        (("merge", "{uri}", "--region", "x"), "InvalidCallError", ExitCode.CALL),
    ],
)
def test_errors_are_json_for_machines(
    table: Any, arguments: tuple[str, ...], kind: str, code: int, form: tuple[str, ...]
) -> None:
    command, *others = (one.format(uri=table.uri) for one in arguments)
    result = ended(command, *form, *others, code=code)
    error = json.loads(result.stderr)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)
    assert error["message"] and result.stdout == ""


def test_json_lines_have_errors_in_json_too(table: Any) -> None:
    result = ended("sql", table.uri, "SELEC", "--output", "jsonl", code=ExitCode.CALL)
    assert json.loads(result.stderr)["error"]["exit_code"] == ExitCode.CALL


def test_an_unforeseen_error_is_json_with_its_traceback(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any) -> None:
        raise KeyError("\x1b[2J")

    monkeypatch.setattr(mw.Table, "overview", broken)
    result = ended("info", table.uri, "--output", "json", code=ExitCode.BUG)
    error = json.loads(result.stderr)["error"]
    assert error["kind"] == "KeyError" and "Traceback" in error["message"]
    assert "\x1b" not in ended("info", table.uri, code=ExitCode.BUG).stderr


def test_runs_of_jobs_carry_time_and_table(table: Any) -> None:
    lines = call("run", table.uri, "--once", "--output", "json").splitlines()
    found = [json.loads(line) for line in lines]
    assert {one["table"] for one in found} == {table.uri}
    assert all(one["time"].endswith("+00:00") for one in found)


def test_offsets_are_written_through_no_link_of_anybody(table: Any, tmp_path: Path) -> None:
    """The file is replaced as a whole, never opened: a link in its place, or in the place of its
    temporary name, leads nobody anywhere."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    offsets = tmp_path / "offsets.json"
    (tmp_path / f"offsets.json.{os.getpid()}").symlink_to(victim)
    call("tail", table.uri, "--offsets", offsets)
    assert json.loads(offsets.read_text())
    offsets.chmod(0o640)
    upsert_rows(table, rows((2, 2)))
    assert call("tail", table.uri, "--offsets", offsets).count("id=2") == 1
    assert stat.S_IMODE(offsets.stat().st_mode) == 0o640
    offsets.unlink()
    offsets.symlink_to(victim)
    with replaced_file(offsets) as sink:
        sink.write(b"{}")
    assert victim.read_text() == "kept" and not offsets.is_symlink()


@pytest.mark.parametrize("name", ["missing/x.csv", "folder", "file/x.csv"])
def test_a_file_that_can_not_be_written_is_named(table: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    to = tmp_path / name
    for command in (("sql", "SELECT 1", "--output", "csv", "--to"), ("tail", "--offsets")):
        text = failing(command[0], table.uri, *command[1:], to, code=ExitCode.CALL)
        assert repr(str(to)) in text and "name a file in a folder" in text, text
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "folder", "table"]


def test_a_pipe_or_a_device_is_written_into(table: Any, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for name in (pipe, link):
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        call("sql", table.uri, "SELECT 1 AS one", "--output", "csv", "--to", name)
        assert os.read(reader, 100) == b'"one"\n1\n'
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and link.is_symlink()
    with replaced_file(Path(os.devnull)) as sink:
        sink.write(b"x")
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


@pytest.mark.parametrize(
    "name", ["/dev/stdout", "/proc/self/fd/1", "/proc/../dev/fd/1", "devices/stdout"]
)
def test_what_is_open_already_is_written_into(tmp_path: Path, name: str) -> None:
    """`/dev/stdout` is a link, to a file where it is redirected."""
    log, before = tmp_path / "log", os.dup(1)
    (tmp_path / "devices").symlink_to("/dev")
    place = Path(name.replace("devices", str(tmp_path / "devices")))

    def write(stdout: int) -> None:
        os.dup2(stdout, 1)
        try:
            with replaced_file(place) as sink:
                sink.write(b"x")
        finally:
            os.dup2(before, 1)

    try:
        for mode, content in (("wb", b"x"), ("ab", b"xx")):
            with log.open(mode) as stdout:
                write(stdout.fileno())
            assert log.read_bytes() == content
        reader, writer = os.pipe()
        write(writer)
        os.close(writer)
        assert os.read(reader, 100) == b"x"
        os.close(reader)
    finally:
        os.close(before)
    assert Path("/dev/stdout").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["devices", "log"]


MEMWAL = ("-m", "memwal_sql")
FULL = "can't be written: No space left on device"


@each("form", ["table", "json", "jsonl", "csv", "parquet"])
@each("size", ["SELECT id FROM t", "SELECT * FROM range(20000)"])
def test_a_full_disk_is_told_with_the_name_of_the_file(table: Any, form: str, size: str) -> None:
    """Also where rows stay in a buffer until the end."""
    command = ("sql", table.uri, size, "--output", form, "--to", "/dev/full")
    text = failing(*command, code=ExitCode.CALL)
    assert f"'/dev/full' {FULL}" in text and "has room" in text and "InvalidCallError" in text


@pytest.mark.parametrize(
    "command",
    usual(
        [
            ("sql", "SELECT * FROM range(20000)", "--output", "json"),
            ("sql", "SELECT * FROM t"),
            ("sql", "SELECT * FROM t", "--output", "csv", "--to", "/dev/stdout"),
            ("info",),
            ("tail", "--output", "json"),
        ],
        1,
    ),
    ids=" ".join,
)
def test_a_full_disk_behind_standard_output_is_told(table: Any, command: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        process = run(*MEMWAL, command[0], table.uri, *command[1:], stdout=full.fileno())
    said = " ".join(process.stderr.split())
    assert process.returncode == ExitCode.CALL, said
    assert FULL in said and "Traceback" not in said and "Exception ignored" not in said
    assert ("'/dev/stdout'" if "--to" in command else "standard output") in said


@pytest.mark.parametrize("form", usual(["parquet", "csv"], 1))
def test_a_file_is_kept_when_there_is_no_room_for_another(
    table: Any, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "x"
    file.write_text("kept")
    code = (
        "import resource; from memwal_sql.cli.app import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); main()"
    )
    query = ("sql", table.uri, "SELECT random() FROM range(20000)", "--output", form)
    process = run("-c", code, *query, "--to", file)
    said = " ".join(process.stderr.split())
    assert process.returncode == ExitCode.CALL, said
    assert f"'{file}' can't be written: File too large" in said
    assert file.read_text() == "kept"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["table", "x"]


def test_an_error_of_the_query_names_no_file(table: Any) -> None:
    """Also while what was written before is still in a buffer."""
    late = "SELECT 1 / (id - 1) AS n FROM t"
    text = failing("sql", table.uri, late, "--output", "csv", "--to", "/dev/full", code=2)
    assert "Divide by zero" in text and "/dev/full" not in text


def test_a_reader_that_left_is_no_error_of_the_file(table: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(BrokenPipeError), replaced_file(pipe) as sink:
        os.close(reader)
        sink.write(b"x")


def test_a_descriptor_that_is_not_open_is_named() -> None:
    file = Path("/dev/fd/987")
    with pytest.raises(mw.InvalidCallError, match=f"'{file}' can't be"), replaced_file(file):
        pass


def test_nobody_may_open_a_replacement_who_may_not_read_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch(0o600)
    created: list[int] = []
    monkeypatch.setattr(
        os, "fchmod", lambda number, _: created.append(stat.S_IMODE(os.fstat(number).st_mode))
    )
    with replaced_file(file) as sink:
        sink.write(b"x")
    assert created == [0o600]


def test_a_new_file_has_the_permissions_that_the_user_asks_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with replaced_file(tmp_path / "file") as sink:
            sink.write(b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_file_is_kept_when_its_replacement_fails(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("kept")

    class BrokenError(Exception):
        pass

    with pytest.raises(BrokenError), replaced_file(file) as sink:
        sink.write(b"half")
        raise BrokenError
    assert file.read_text() == "kept" and list(tmp_path.iterdir()) == [file]


@each("text", ["{", "[" * 100_000, "\x00", "\xff", '"x"', "NaN", "null", "[null]", '{"x": 1e999}'])
def test_a_damaged_offsets_file_is_a_wrong_call(table: Any, tmp_path: Path, text: str) -> None:
    offsets = tmp_path / "offsets.json"
    offsets.write_bytes(text.encode("latin-1"))
    ended("tail", table.uri, "--offsets", offsets, code=ExitCode.CALL)
    assert offsets.read_bytes() == text.encode("latin-1")


def test_modules_of_the_working_folder_are_not_imported_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--read-wal` finds a module there, of a name that no other module has, and nothing else."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "wal_of_mine.py").write_text("def read(one):\n    return []\n")
    (folder / "json.py").write_text("raise SystemExit('imported from the working folder')\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    before = list(sys.path)
    uri = str(tmp_path / "older")
    make_older(uri, rows((1, 1)), [mem_wal("r", 1, "OPEN", entry_range(0, 1))])
    as_json("upgrade", uri, "--primary-key", "id", "--read-wal", "wal_of_mine:read")
    assert sys.path == before


@pytest.mark.parametrize(
    "arguments",
    usual(
        [
            (),
            ("--help",),
            ("load", "--help"),
            ("--version",),
            ("info", "{table}"),
            ("regions", "{table}"),
            ("regions", "{table}", "--output", "json"),
            ("sql", "{table}", "SELECT 1 AS one"),
            ("sql", "{table}", "SELECT 1 AS one", "--output", "csv"),
        ],
        1,
    ),
    ids=" ".join,
)
def test_a_reader_that_has_left_has_one_exit_code(table: Any, arguments: tuple[str, ...]) -> None:
    """Help, versions and tables ended with 1, which says that a check has findings."""
    reader, closed = os.pipe()
    os.close(reader)
    try:
        named = [one.format(table=table.uri) for one in arguments]
        process = run(*MEMWAL, *named, stdout=closed)
    finally:
        os.close(closed)
    assert (process.returncode, process.stderr) == (ExitCode.PIPE_CLOSED, "")


def test_where_a_table_is_or_is_not_the_command_is_told_which_option_helps(
    table: Any, tmp_path: Path
) -> None:
    file = tmp_path / "x.csv"
    file.write_text("id,n\n1,2\n")
    text = failing("load", tmp_path / "none", file, code=ExitCode.CALL)
    assert "is not a Lance table" in text and "memwal load --primary-key" in text
    text = failing("load", table.uri, file, "--primary-key", "id", code=ExitCode.CALL)
    assert "is a table already" in text and "without --primary-key" in text
