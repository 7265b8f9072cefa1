#!/usr/bin/env bash
# DataFusion 55.2.0 (wheel 55.0.0) ignores OFFSET in a correlated EXISTS: a row with one partner has
# "a second one". DuckDB 1.4.1 and SQLite skip the first partner.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "datafusion==55.0.0" "pyarrow==26.0.1" "duckdb==1.4.1"
"$folder/venv/bin/python" - <<'PYTHON'
import sqlite3

import datafusion
import duckdb

ROWS = {"t": "VALUES (1), (2), (3)", "u": "VALUES (1), (2), (2)"}
TABLES = [f"CREATE TABLE {name} AS SELECT column1 AS a FROM ({rows})" for name, rows in ROWS.items()]
QUERY = """SELECT a FROM t
WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a LIMIT 10 OFFSET 1) ORDER BY a"""

fusion, duck, lite = datafusion.SessionContext(), duckdb.connect(), sqlite3.connect(":memory:")
for statement in TABLES:
    fusion.sql(statement).collect()
    duck.execute(statement.replace("column1", "col0"))
    lite.execute(statement)
answers = {
    "DataFusion": fusion.sql(QUERY).to_pydict()["a"],
    "DuckDB": [a for (a,) in duck.execute(QUERY).fetchall()],
    "SQLite": [a for (a,) in lite.execute(QUERY)],
}
print(answers)
assert answers == {"DataFusion": [1, 2], "DuckDB": [2], "SQLite": [2]}, answers
PYTHON
# Seen 2026-11-30: {'DataFusion': [1, 2], 'DuckDB': [2], 'SQLite': [2]}
