"""Texts that a terminal would obey: shown as escapes, wherever in a table they stand."""

from __future__ import annotations

import json
import os
import pty
import re
import tty
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import memwal_sql as mw
from memwal_sql.cli import output
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.view.texts import visible, visible_json, visible_lines
from tests.cli.calls import call, ended
from tests.each import each
from tests.model.writing import upsert_rows
from tests.program import run, start
from tests.soak import usual

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\u202ecba\u2066\r\n\t\x7f\u2028[red]"
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
NAME = f"n{EVIL}"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Such texts as key, value, column's name, region's name, index's name; one row flushed."""
    schema = pa.schema({"id": pa.string(), NAME: pa.string(), "list": pa.list_(pa.string())})
    uri = str(tmp_path_factory.mktemp("hostile") / "table")
    table = mw.create_table(uri, schema, primary_key="id", regions=[mw.identity("id")])
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [EVIL], NAME: [EVIL], "list": [[EVIL]]}, schema))
        writer.flush()
        writer.delete(pa.table({"id": [EVIL]}))
        writer.upsert(pa.table({"id": ["plain"], NAME: [EVIL], "list": [[EVIL]]}, schema))
    return table


COMMANDS = [
    ("info",),
    ("regions",),
    ("generations",),
    ("wal",),
    ("tail",),
    ("check",),
    ("sql", "SELECT * FROM t"),
    ("sql", "SELECT * FROM t$regions"),
    ("explain", "SELECT * FROM t WHERE id = '\"\x1b[2J'"),
    ("gc",),
    ("run", "--once"),
]


@each("terminal", [False, True])
@each("form", ["table", "json"])
@each("command", COMMANDS)
def test_nothing_of_a_table_is_obeyed_by_a_terminal(
    table: Any, command: tuple[str, ...], form: str, terminal: bool, monkeypatch: Any
) -> None:
    if terminal:  # as a terminal without colours has it
        plain = {"force_terminal": True, "color_system": None, "width": 200}
        monkeypatch.setattr(output, "stdout", lambda: Console(**plain))
    name, *others = command
    result = ended(name, table.uri, *others, "--output", form)
    for text in (result.stdout, result.stderr):
        assert not OBEYED.search(text), ascii(text)
    if form == "json":
        for line in result.stdout.splitlines() if name in ("tail", "run") else [result.stdout]:
            json.loads(line)


@each(
    "command",
    [
        ("sql", "SELECT '\x1b[2J' FROM nothing\x1b"),
        ("merge", "--region", EVIL),
        ("index", "--name", EVIL),
        ("tail", "--region", EVIL),
        ("tail", "--after", EVIL),
        ("gc", "--older-than", EVIL),
        ("checkpoint", EVIL.replace("\x00", "")),
        ("sql", "SELECT arrow_cast(id, 'Int64') FROM t"),
    ],
)
def test_nor_is_a_message(table: Any, command: tuple[str, ...]) -> None:
    name, *others = command
    for form in ("table", "json"):
        result = ended(name, table.uri, *others, "--output", form, code=ExitCode.CALL)
        assert result.stderr and not OBEYED.search(result.stderr), ascii(result.stderr)


WAYS_TO_A_TERMINAL = (
    *((), ("--to", "/dev/stdout"), ("--to", "/dev/fd/1"), ("--to", "/proc/self/fd/1")),
    *(("--to", "/dev/../dev/stdout"), ("--to", "/dev/tty"), ("--to", "LINK")),
)


def in_a_terminal(*command: str) -> tuple[int, str]:
    """The exit code of a process that has a terminal of its own, and what arrives there."""
    ours, its = pty.openpty()
    tty.setraw(its)
    process = start(command, [its] * 3, has_terminal=True)
    os.close(its)
    arrived = b""
    with suppress(OSError):  # EIO: all has arrived
        while part := os.read(ours, 10_000):
            arrived += part
    os.close(ours)
    process.join()
    return process.exitcode or 0, arrived.decode()


@pytest.mark.parametrize("way", usual(WAYS_TO_A_TERMINAL, 2), ids="".join)
def test_csv_is_shown_in_a_terminal_and_exact_elsewhere(
    table: Any, tmp_path: Path, way: tuple[str, ...]
) -> None:
    """A real terminal, in which everything that a table holds arrives as text."""
    link = tmp_path / "link"
    link.symlink_to("/dev/tty")
    way = tuple(one.replace("LINK", str(link)) for one in way)
    query = ("-m", "memwal_sql", "sql", table.uri)
    query = (*query, f'SELECT id, "{NAME.replace(chr(0), "")}" FROM t', *way, "--output", "csv")
    code, shown = in_a_terminal(*query)
    assert code == 0
    assert not OBEYED.search(shown) and "\\x1b[2J" in shown and "plain" in shown
    if not way:
        assert f'"plain","{EVIL}"\n' in run(*query).stdout


@pytest.mark.parametrize(
    "way", usual([("--to", "/dev/tty"), (), ("--to", "/dev/stdout")], 1), ids="".join
)
def test_no_parquet_is_sent_to_a_terminal(table: Any, way: tuple[str, ...]) -> None:
    query = ("sql", table.uri, "SELECT id FROM t", "--output", "parquet", *way)
    code, shown = in_a_terminal("-m", "memwal_sql", *query)
    assert code == ExitCode.CALL
    assert "Parquet is not text" in shown and "PAR1" not in shown


def test_json_says_the_same_as_the_data(table: Any) -> None:
    found = json.loads(call("sql", table.uri, "SELECT * FROM t", "--output", "json"))
    assert found == [{"id": "plain", NAME: EVIL, "list": [EVIL]}]


def test_every_control_is_an_escape() -> None:
    everything = "".join(map(chr, range(0xD800)))
    assert not OBEYED.search(visible(everything)) and "\n" not in visible(everything)
    assert not OBEYED.search(visible_lines(everything)) and "\n" in visible_lines(everything)
    text = json.dumps(everything, ensure_ascii=False)
    assert json.loads(visible_json(text)) == everything and not OBEYED.search(visible_json(text))
    assert visible("a\x1b[0m\nb\u202e") == "a\\x1b[0m\\nb\\u202e"
    assert visible("naïve 東京 🙂") == "naïve 東京 🙂"


def test_values_stay_on_their_lines(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "text": pa.string()})
    table = mw.create_table(str(tmp_path / "t"), schema, primary_key="id")
    upsert_rows(table, pa.table({"id": [1, 2], "text": ["a\nb", "東京"]}, schema))
    lines = call("sql", table.uri, "SELECT text, id FROM t ORDER BY id").splitlines()
    assert lines == ["text  id", "a\\nb   1", "東京   2"]
