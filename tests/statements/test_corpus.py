"""Every form of a statement does what the corpus says, and what DuckDB does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pyarrow as pa

import memwal_sql as mw

_CORPUS = Path(__file__).with_name("corpus.sql")
_OWN = "-- own\n"
_ROWS = pa.table(
    {"id": pa.array([1, 2, 3]), "n": pa.array([10, 20, 30]), "s": ["a", "b", "c"]},
    schema=pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("s", pa.string())]
    ),
)
_SOURCE = pa.table({"id": [2, 4], "n": [5, 7]})


@dataclass(frozen=True, slots=True)
class Entry:
    """A statement, what it answers with and the rows that the table has then.

    Attributes:
        is_own: whether DuckDB has no such statement.
    """

    text: str
    answer: str
    rows: str
    is_own: bool


def entries() -> Iterator[Entry]:
    """The statements of the corpus."""
    _, *blocks = _CORPUS.read_text(encoding="utf-8").strip().split("\n\n")
    for block in blocks:
        is_own = block.startswith(_OWN)
        text, _, result = block.removeprefix(_OWN).rpartition("\n-> ")
        answer, _, rows = result.partition(" |")
        yield Entry(text, answer, rows.strip(), is_own)


def shown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as the corpus writes them."""
    texts = (
        " ".join("NULL" if value is None else str(value) for value in row.values()) for row in rows
    )
    return ", ".join(texts)


def left_by_duckdb(text: str) -> str:
    """The rows that DuckDB leaves."""
    with duckdb.connect() as database:
        database.register("rows", _ROWS)
        database.register("source", _SOURCE)
        database.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, s TEXT)")
        database.execute("INSERT INTO t FROM rows; CREATE TABLE s AS FROM source")
        database.execute(text)
        left = database.execute("SELECT id, n, s FROM t ORDER BY id").fetchall()
        return shown([dict(zip(_ROWS.column_names, row, strict=True)) for row in left])


def test_each_statement_does_what_the_corpus_says(tmp_path: Path) -> None:
    for number, entry in enumerate(entries()):
        ctx = datafusion.SessionContext()
        ctx.register_record_batches("s", [_SOURCE.to_batches()])
        with mw.create_table(str(tmp_path / str(number)), _ROWS.schema, "id") as table:
            with table.writer() as writer:
                writer.upsert(_ROWS)
            if "AS OF" in entry.text:
                table.checkpoint("start")
            mw.register(ctx, "t", table)
            text = entry.text.replace("{folder}", str(tmp_path / f"{number}-made"))
            answer = mw.sql(ctx, text).to_pylist()
            rows = table.to_arrow().sort_by("id").to_pylist()
        assert sorted(shown(answer).split(", ")) == sorted(entry.answer.split(", ")), entry.text
        assert shown(rows) == entry.rows, entry.text


def test_each_statement_leaves_the_rows_that_duckdb_leaves() -> None:
    for entry in entries():
        if not entry.is_own:
            assert left_by_duckdb(entry.text) == entry.rows, entry.text
