"""Commands for the past of a table, for its definition, and the prompt for statements."""

from __future__ import annotations

import os
import pty
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.cli import prompt as prompts
from tests.cli.calls import as_json, call, failing
from tests.program import run

ROOT = Path(__file__).parent.parent.parent
SCHEMA = pa.schema([("id", pa.int64()), ("body", pa.string())])


@pytest.fixture
def uri(tmp_path: Path) -> str:
    table = mw.create_table(tmp_path / "table", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "body": "one"}, {"id": 2, "body": "two"}])
        writer.flush()
    return table.uri


def rows(uri: str) -> list[tuple[int, str]]:
    found = mw.open_table(uri).to_arrow().sort_by("id")
    return list(zip(found["id"].to_pylist(), found["body"].to_pylist(), strict=True))


def test_a_tagged_state_is_listed_and_restored(uri: str) -> None:
    version = as_json("tag", uri, "before")["version"]
    call("sql", uri, "DELETE FROM t WHERE id = 1; UPDATE t SET body = 'three'")
    assert rows(uri) == [(2, "three")]
    (tag,) = as_json("tag", uri)
    assert (tag["name"], tag["version"]) == ("before", version)
    listed = {row["version"]: row["tags"] for row in as_json("versions", uri)}
    assert listed[version] == ["before"]
    assert as_json("restore", uri, "--version", "before") == {"rows": 2}
    assert as_json("sql", uri, "SELECT count(*) AS n FROM t", "--version", version) == [{"n": 2}]
    assert rows(uri) == [(1, "one"), (2, "two")]
    assert "no tag any more" in call("tag", uri, "before", "--delete")
    assert as_json("tag", uri) == []
    for wrong, text in (
        (("tag", uri, "--delete"), "NAME of the tag is missing"),
        (("tag", uri, "gone", "--delete"), "gone"),
        (("tag", uri, "x", "--version", 99), "99"),
        (("restore", uri), "version"),
    ):
        assert text in failing(*wrong, code=2)


def test_indexes_are_built_and_dropped(uri: str) -> None:
    assert as_json("create-index", uri, "body", "fts", "-p", "with_position=true") == {
        "index": "body_idx"
    }
    table = mw.open_table(uri)
    assert "body_idx" in table.indexes()["name"].to_pylist()
    assert table.full_text_search("body", {"phrase": {"query": "one"}}).num_rows == 1
    assert "must be one of" in failing("create-index", uri, "body", "TREE", code=2)
    named = ("create-index", uri, "body", "FTS", "-p", "name=x")
    assert "argument or option of its own" in failing(*named, code=2)
    assert "dropped body_idx" in call("drop-index", uri, "body_idx")
    assert "body_idx" not in mw.open_table(uri).indexes()["name"].to_pylist()


def test_a_table_is_dropped_if_that_is_said(uri: str) -> None:
    assert "give --yes" in failing("drop", uri, code=2)
    assert rows(uri) == [(1, "one"), (2, "two")]
    assert f"dropped {uri}" in call("drop", uri, "--yes")
    assert not Path(uri).exists()


def asker(*lines: str | BaseException) -> Callable[[str], str]:
    left = iter(lines)

    def ask(_: str) -> str:
        line = next(left, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line

    return ask


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (["SELECT 1;"], ["SELECT 1;"]),
        (["SELECT", "1;", "SELECT 2; SELECT 3;"], ["SELECT\n1;", "SELECT 2; SELECT 3;"]),
        (["SELECT ';", "';"], ["SELECT ';\n';"]),
        (["SELECT 1 -- ;", ";"], ["SELECT 1 -- ;\n;"]),
        (["SELECT 1", KeyboardInterrupt(), "SELECT 2;"], ["SELECT 2;"]),
        (["", "fails;", "SELECT 1;"], ["fails;", "SELECT 1;"]),
        (["stops;", "SELECT 1;"], ["stops;", "SELECT 1;"]),
        (["SELECT 1;", "exit", "SELECT 2;"], ["SELECT 1;"]),
        (["QUIT;", "SELECT 2;"], []),
    ],
)
def test_texts_end_with_a_semicolon(lines: list[str | BaseException], texts: list[str]) -> None:
    answered = []

    def answer(text: str) -> None:
        answered.append(text)
        if text == "fails;":
            raise mw.InvalidCallError("no")
        if text == "stops;":
            raise KeyboardInterrupt

    prompts.prompt(answer, asker(*lines))
    assert answered == texts


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ends = pty.openpty()
    yield ends
    for end in ends:
        os.close(end)


def test_a_terminal_asks_for_statements(uri: str, terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    statements = (
        "BEGIN;\nDELETE FROM t WHERE id = 1;\nCOMMIT;\nnonsense;\nSELECT max(id) + $more FROM t;"
    )
    os.write(ours, f"{statements}\nexit\n".encode())
    command = ("-m", "memwal_sql", "sql", uri, "--param", "more=40")
    ended = run(*command, stdin=theirs)
    assert ended.returncode == 0, ended.stderr
    assert "42" in ended.stdout and "InvalidCallError" in ended.stderr
    assert rows(uri) == [(2, "two")]
    os.write(ours, b"BEGIN;\nDELETE FROM t;\nexit\n")
    ended = run(*command, stdin=theirs)
    assert ended.returncode == 2 and "end within a transaction" in ended.stderr
    assert rows(uri) == [(2, "two")]
