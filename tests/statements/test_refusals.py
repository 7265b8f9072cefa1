"""Statements that are refused: an error of this package says why, where and what to write instead,
shows nothing of its inside, and nothing was changed."""

from __future__ import annotations

import re
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import refusals
from tests.statements.beside_duckdb import DUE, SCHEMA

_CORPUS = Path(__file__).with_name("refused.sql")
INSIDE = re.compile(
    r"memwal[$ ]|Line:|Column:|DataFusion error|ParserError"
    r"|caused by|\.rs:\d|\w \{ \w|Some\(|Internal error"
)
# Words of DataFusion's inside, which plans may have.
PLANNER = re.compile(
    r"Error during planning|External error|__|\?table\?|Physical plan|LogicalPlan|Analyzer"
    r"|ident_normalization|Proto |Subquery\w"
)


class State:
    """A session with the tables of the corpus, in a folder that has nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ctx = mw.SessionContext()
        texts = "id BIGINT PRIMARY KEY, n BIGINT, v FLOAT[2], c TEXT"
        mw.sql(self.ctx, f"CREATE TABLE t ({texts}) LOCATION '{folder / 't'}'")
        mw.sql(self.ctx, "INSERT INTO t VALUES (1, 10, [0, 0], 'x'), (2, 20, [0, 1], 'y')")
        mw.sql(self.ctx, "CALL memwal.checkpoint('t', 'then')")
        mw.register(self.ctx, "w", mw.create_table(folder / "w", SCHEMA, ["tenant", "id"]))
        mw.sql(self.ctx, "INSERT INTO w VALUES ('a', 1, 1, NULL), ('a', 2, 2, NULL)")
        self.ctx.from_pydict({"id": [1, 2], "n": [3, 4]}, name="s")
        mw.sql(self.ctx, "CREATE TABLE m AS VALUES ('a', 1, 10), ('a', 7, 70)")
        self.ctx.register_batch("due", DUE.to_batches()[0])
        mw.create_table(folder / "lake/events.lance", pa.schema({"id": pa.int64()}), "id")
        lance.write_dataset(pa.table({"id": [1]}), folder / "lake/plain.lance")
        (folder / "lake/empty.lance").mkdir()
        mw.catalog(self.ctx, folder / "lake", "lake")

    def shown(self) -> object:
        """All that a statement could change: files, which have the rows of tables and their
        indexes, tables in memory, and names."""
        return (
            {path: path.stat().st_mtime_ns for path in self.folder.rglob("*")},
            self.ctx.table("s").to_pylist(),
            sorted(self.ctx.catalog().schema().names()),
        )


def _shows_inside(message: str) -> bool:
    return bool(INSIDE.search(message) or PLANNER.search(message))


def test_what_is_refused_says_why_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, failures = State(tmp_path), list[str]()
    monkeypatch.chdir(tmp_path)  # of tables whose place is a name alone
    before = state.shown()
    for statement, words in refusals(_CORPUS):
        parameters = {"q": b"x"} if "$q" in statement else {}
        try:
            mw.sql(state.ctx, statement, **parameters).collect()
            failures.append(f"{statement}: it was run")
        except mw.InvalidCallError as error:
            if not re.search(words, str(error), re.DOTALL) or _shows_inside(str(error)):
                failures.append(f"{statement}: {error}")
        if state.shown() != before:
            failures.append(f"{statement}: something has changed")
            break
    assert not failures, "\n".join(failures)
