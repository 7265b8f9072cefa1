"""`memwal sql`: the statements of mw.sql, over several tables, with parameters."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import memwal_sql as mw
from memwal_sql.cli.app import app
from memwal_sql.cli.exit_codes import ExitCode
from tests.cli.calls import call, failing
from tests.each import each

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


@pytest.fixture
def uri(tmp_path: Path) -> str:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert({"id": [1, 2, 3], "val": ["a", "b", "c"]})
    return table.uri


def rows(*arguments: str) -> Any:
    return json.loads(call("sql", *arguments, "--output", "json"))


def test_statements_that_write_run_with_their_counts(uri: str) -> None:
    assert rows(uri, "DELETE FROM t WHERE id > $least", "--param", "least=2") == [{"count": 1}]
    assert rows(uri, "UPDATE t SET val = $v", "-p", "v=x=y") == [{"count": 2}]
    assert rows(uri, "INSERT INTO t VALUES (9, $v)", "-p", 'v="3"') == [{"count": 1}]
    assert rows(uri, "SELECT val FROM t ORDER BY id") == [
        {"val": "x=y"},
        {"val": "x=y"},
        {"val": "3"},
    ]


def test_parameters_are_json_or_texts(uri: str) -> None:
    values = {"3": 3, "1.5": 1.5, "true": True, "null": None, "a b": "a b", "[1, 2]": [1, 2]}
    for text, value in values.items():
        assert rows(uri, "SELECT $p AS p", "--param", f"p={text}") == [{"p": value}]


def test_several_tables_and_statements_of_a_file(uri: str, tmp_path: Path) -> None:
    other = mw.create_table(tmp_path / "other", SCHEMA, "id")
    script = tmp_path / "script.sql"
    script.write_text(
        "INSERT INTO o SELECT id + 10, val FROM t; -- and ; here\n"
        "CREATE VIEW big AS SELECT * FROM o WHERE val <> ';';\n"
        "DELETE FROM t WHERE id IN (SELECT id - 10 FROM big WHERE id < 13);\n"
        "SELECT (SELECT count(*) FROM t) AS t, (SELECT count(*) FROM big) AS o;\n"
    )
    found = rows(uri, "--file", str(script), "--table", f"o={other.uri}")
    assert found == [{"t": 1, "o": 3}]
    result = CliRunner().invoke(
        app, ["sql", uri, "-", "-t", f"o={other.uri}"], input="SELECT max(id) AS m FROM o"
    )
    assert result.stdout.split() == ["m", "13"]


def test_parameters_may_be_those_of_one_of_several_statements_but_of_one(uri: str) -> None:
    script = "DELETE FROM t WHERE id = $a; SELECT count(*) AS n FROM t"
    assert rows(uri, script, "-p", "a=1") == [{"n": 2}]
    result = CliRunner().invoke(app, ["sql", uri, script, "-p", "a=2", "-p", "b=1"])
    assert result.exit_code == ExitCode.CALL
    assert "$b" in result.stderr
    assert mw.open_table(uri).count_rows() == 2


def test_errors_have_the_places_of_the_text_that_was_given(uri: str) -> None:
    script = "SELECT [1] <-> [2];\nSELECT [1] + * 2 FROM t"
    error = failing("sql", uri, script, code=ExitCode.CALL)
    assert "found: *, at line 2, column 14: '*'" in error
    error = failing("explain", uri, "SELECT nope FROM t", code=ExitCode.CALL)
    assert "No field named nope" in error


def test_statements_that_follow_an_error_do_not_run(uri: str) -> None:
    script = "DELETE FROM t WHERE id = 1; SELECT nothing FROM t; DELETE FROM t"
    result = CliRunner().invoke(app, ["sql", uri, script])
    assert result.exit_code == ExitCode.CALL
    assert mw.open_table(uri).count_rows() == 2


def test_a_script_ends_where_it_sets_another_dialect(uri: str) -> None:
    script = "DELETE FROM t; SET datafusion.sql_parser.dialect = 'mysql'; DELETE FROM t"
    assert "default dialect" in failing("sql", uri, script, code=ExitCode.CALL)


@pytest.mark.parametrize("end", ["SELECT 'open", "SELECT 1)", "SELECT 1 /* open"])
def test_nothing_runs_if_a_statement_can_not_be_read(uri: str, end: str) -> None:
    failing("sql", uri, f"DELETE FROM t; {end}; SELECT 1", code=ExitCode.CALL)
    failing("sql", uri, "DELETE FROM t; SELECT 1", "-p", "a=1", code=ExitCode.CALL)
    assert mw.open_table(uri).count_rows() == 3


def test_tables_are_made_and_jobs_are_called(uri: str, tmp_path: Path) -> None:
    copy = f"CREATE TABLE c (PRIMARY KEY (id)) LOCATION '{tmp_path}/c' AS SELECT * FROM t"
    assert rows(uri, copy) == [{"count": 3}]
    assert rows(uri, "CALL memwal.merge('t')") == [{"generations": 0}]
    opened = f"CREATE EXTERNAL TABLE c STORED AS MEMWAL LOCATION '{tmp_path}/c'"
    assert rows(uri, f"{opened}; SELECT count(*) AS n FROM c") == [{"n": 3}]


UNREADABLE = ("SELECT 'open", "SELECT 1)", "SELECT [1] <-> ", "SELECT 1 + )", " ; ", "/* none */")


@each(
    "arguments",
    [
        *product(("sql", "explain"), UNREADABLE),
        ("explain", "SELECT 1; SELECT 2"),
        ("sql", "SELECT 1", "--param", "x"),
        ("sql", "SELECT 1", "--param", "=1"),
        ("sql", "SELECT $x", "--param", "x=1", "--param", "x=2"),
        ("sql", "SELECT 1", "--table", "only-a-name"),
        ("sql", "SELECT 1", "--table", "o=nothing-there"),
        *(("sql", "SELECT 1", "--table", f"{name}={{}}") for name in ("t", "T", '"t"', "public.t")),
        ("sql", "SELECT 1", "--table", "o={}", "--table", "O={}"),
    ],
)
def test_bad_calls_are_calls_to_change(uri: str, arguments: tuple[str, ...]) -> None:
    command, *others = (one.replace("{}", uri) for one in arguments)
    assert failing(command, uri, *others, code=ExitCode.CALL).startswith("InvalidCallError: ")


def test_transactions_of_a_script_and_their_history(uri: str, tmp_path: Path) -> None:
    other = mw.create_table(tmp_path / "other", SCHEMA, "id").uri
    transfer = "SET memwal.actor = 'ana'; BEGIN; DELETE FROM t WHERE id = 1; INSERT INTO o VALUES "
    assert rows(uri, transfer + "(1, 'a'); COMMIT", "-t", f"o={other}")[0]["count"] == 2
    error = failing("sql", uri, transfer + "(2, 'b')", "-t", f"o={other}", code=ExitCode.CALL)
    assert "end within a transaction" in error
    assert rows(uri, "SELECT count(*) AS n FROM t, o", "-t", f"o={other}") == [{"n": 2}]
    listed = json.loads(call("history", uri, other, "--output", "json"))
    assert [(row["actor"], row["upserts"], row["deletes"]) for row in listed] == [("ana", 1, 1)]
    assert json.loads(call("history", uri, "--actor", "bob", "--output", "json")) == []
