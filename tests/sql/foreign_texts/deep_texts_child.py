"""A process that meets texts of deep trees. It prints what was not as it should be.

`python -m tests.sql.foreign_texts.deep_texts_child WHAT FOLDER`
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import datafusion
import pyarrow as pa

import memwal_sql as mw
from memwal_sql.cli.app import main

# Rows of an operator, most beyond what a stack of 8 MiB has room for.
CONDITIONS: dict[str, Callable[[int], str]] = {
    "OR": lambda n: "id = 1" + " OR id = 2" * n,
    "AND": lambda n: "id = 1" + " AND id = 2" * n,
    "+": lambda n: "id" + " + 1" * n + " > 0",
    "||": lambda n: "s" + " || 'a'" * n + " = 'a'",
    "::": lambda n: "id" + "::bigint" * n + " = 1",
    "IS TRUE": lambda n: "(id = 1)" + " IS TRUE" * n,
    "[]": lambda n: "CAST(NULL AS INT" + "[]" * n + ") IS NULL",
    "AT TIME ZONE": lambda n: "now()" + " AT TIME ZONE 'UTC'" * n + " IS NULL",
    "BETWEEN": lambda n: "(id = 1)" + " BETWEEN false AND true" * n,
    "LIKE": lambda n: "s" + " LIKE 'a'" * n,
    "->": lambda n: "s" + " -> 'a'" * n,
    "=": lambda n: "true" + " = true" * n,
    "IN": lambda n: "true" + " IN (true)" * n,
    "CASE": lambda n: "CASE" + " WHEN id = 1 THEN true" * n + " END",
    "COLLATE": lambda n: "s" + " COLLATE x" * n + " = 'a'",
    "STRUCT": lambda n: "CAST(NULL AS " + "STRUCT<a INT, b " * n + "INT" + ">" * n + ") IS NULL",
    "(": lambda n: "(" * n + "id = 1" + ")" * n,
}
STATEMENTS: dict[str, Callable[[int], str]] = {
    "EXPLAIN": lambda n: "EXPLAIN " * n + "SELECT 1",
    "EXCEPT": lambda n: " EXCEPT ".join(["SELECT 1 AS a"] * n),
    "UNION": lambda n: " UNION ALL ".join(["VALUES (1)"] * n),
    "JOIN": lambda n: "SELECT 1 FROM t" + "".join(f" CROSS JOIN t AS t{i}" for i in range(n)),
    "FROM": lambda n: "SELECT 1 FROM t" + "".join(f", t AS t{i}" for i in range(n)),
    "WITH": lambda n: (
        "WITH c AS (SELECT * FROM t)"
        + "".join(f", c{i} AS (SELECT * FROM c{i - 1 if i else ''})" for i in range(n))
        + f" SELECT * FROM c{n - 1}"
    ),
    "PIVOT": lambda n: "SELECT * FROM t" + " PIVOT(sum(id) FOR s IN ('x'))" * n,
    "|>": lambda n: "FROM t " + "|> WHERE id > 0 " * n,
    "type": lambda n: f"CREATE TABLE z (id BIGINT PRIMARY KEY, a INT{'[]' * n}) LOCATION 'z'",
    "VERSION AS OF": lambda n: "SELECT * FROM t VERSION AS OF (1" + " + 1" * n + ")",
    "CALL": lambda n: "CALL memwal.check('t', x => 1" + " + 1" * n + ")",
}
LONG = 4_000


def doors(folder: Path) -> dict[str, Callable[[str], object]]:
    """What takes a condition."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), False),
            pa.field("s", pa.string()),
            pa.field("v", pa.list_(pa.float32(), 2)),
        ]
    )
    table = mw.create_table(folder / "t", schema, primary_key="id")
    writer = table.writer()
    writer.upsert(pa.table({"id": [1], "s": ["a"], "v": [[0.0, 0.0]]}, schema=schema))
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    row = pa.table({"id": [1], "s": ["b"]})
    key = pa.schema([pa.field("s", pa.string(), False)])
    return {
        "scan": lambda text: table.scan(filter=text).read_all(),
        "count_rows": table.count_rows,
        "vector_search": lambda text: table.vector_search("v", [0.0, 0.0], k=1, filter=text),
        "delete_where": writer.delete_where,
        "update where": lambda text: writer.update({"s": "'a'"}, where=text),
        "update set": lambda text: writer.update({"s": text}, where="id = 1"),
        "upsert when": lambda text: writer.upsert(row, when=text),
        "add_columns": lambda text: table.add_columns({"c": text}),
        "SELECT": lambda text: mw.sql(context, f"SELECT id FROM t WHERE {text}").to_pylist(),
        "DELETE": lambda text: mw.sql(context, f"DELETE FROM t WHERE id = 2 AND ({text})"),
        "RETURNING": lambda text: mw.sql(context, f"DELETE FROM t WHERE id = 2 RETURNING {text}"),
        "statement": lambda text: mw.sql(context, text).to_pylist(),
        "expression": lambda text: mw.create_table(
            folder / "e", key, "s", regions=[mw.expression(text.replace("id", "col0"), "s")]
        ),
    }


def refuse(folder: Path) -> None:
    """All of these are refused by all doors, in a few words."""
    for door, call in doors(folder).items():
        kinds = STATEMENTS if door == "statement" else CONDITIONS
        if door not in ("statement", "count_rows"):
            kinds = {"OR": CONDITIONS["OR"]}
        for kind, text in kinds.items():
            try:
                call(text(LONG))
                sys.stdout.write(f"{door}, {kind}: runs" + "\n")
            except mw.InvalidCallError as error:
                message = str(error)
                remedy = "characters at most" if door == "expression" else "x IN (1, 2, ...)"
                if len(message) > 600 or remedy not in message:
                    sys.stdout.write(
                        f"{door}, {kind}: {len(message)} characters, {message[:300]}" + "\n"
                    )
            except Exception as error:
                sys.stdout.write(
                    f"{door}, {kind}: {type(error).__name__}: {str(error)[:100]}" + "\n"
                )
    text = f"SELECT id FROM t WHERE {CONDITIONS['OR'](LONG)}"
    sys.argv = ["memwal", "sql", "--table", f"t={folder / 't'}", text]
    try:
        main()
        code = None
    except SystemExit as ended:
        code = ended.code
    if code != 2:
        sys.stdout.write("memwal sql: no error of a call" + "\n")


def answer(folder: Path) -> None:
    """The longest texts that are taken need no more than a stack of 2 MiB."""
    calls = doors(folder)
    lengths = {
        "::": 120,
        "+": 60,
        "||": 120,
        "=": 110,
        "[]": 110,
        "BETWEEN": 8,
        "AT TIME ZONE": 110,
    }
    lengths |= {"OR": 490, "AND": 490, "IS TRUE": 60, "IN": 110, "CASE": 480, "(": 8}
    for kind, length in lengths.items():
        for door in ("count_rows", "SELECT"):
            try:
                calls[door](CONDITIONS[kind](length))
            except Exception as error:
                sys.stdout.write(
                    f"{door}, {kind}: {type(error).__name__}: {str(error)[:300]}" + "\n"
                )
    for kind, length in {"EXCEPT": 90, "UNION": 240, "WITH": 100}.items():
        try:
            calls["statement"](STATEMENTS[kind](length))
        except Exception as error:
            sys.stdout.write(f"{kind}: {type(error).__name__}: {str(error)[:300]}" + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "refuse":
        refuse(Path(sys.argv[2]))
    else:
        threading.stack_size(2 << 20)
        thread = threading.Thread(target=answer, args=(Path(sys.argv[2]),))
        thread.start()
        thread.join()
