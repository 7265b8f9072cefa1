"""DELETE, UPDATE, INSERT, REPLACE and MERGE do what the same statements do in DuckDB."""

from __future__ import annotations

import re
from pathlib import Path

import datafusion
import pytest

import memwal_sql as mw
from tests.soak import SOAK
from tests.statements.beside_duckdb import BesideDuckDB

_CORPUS = Path(__file__).with_name("beside_duckdb.sql")


def statements() -> list[str]:
    _, _, text = _CORPUS.read_text(encoding="utf-8").partition("\n\n")
    return [statement.strip() for statement in text.split(";\n") if statement.strip()]


def of_duckdb(statement: str) -> str:
    if "ON CONFLICT" in statement:
        return statement
    return re.sub(r"^(INSERT|REPLACE) INTO", "INSERT OR REPLACE INTO", statement)


@pytest.mark.parametrize("seed", range(SOAK))
def test_statements_do_what_duckdb_does(
    table: mw.Table, ctx: datafusion.SessionContext, seed: int
) -> None:
    both = BesideDuckDB(table, ctx, seed)
    for statement in both.random.sample(statements(), len(statements())):
        both.check(statement, of_duckdb(statement))
