"""Searches in statements: named arguments and parameters."""

from collections.abc import Iterator

import datafusion
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_native.syntax import SqlParser
from memwal_sql.statements.queries import query_frames
from memwal_sql.statements.queries.parsed import Text, parsed_query

Q = pa.array([3.2, 0.1])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.list_(pa.float32(), 2)),
        pa.field("body", pa.string()),
    ]
)


@pytest.fixture
def ctx() -> datafusion.SessionContext:
    return datafusion.SessionContext()


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> Iterator[mw.Table]:
    table = mw.create_table(uri, SCHEMA, primary_key="id")
    table = mw.register(ctx, "t", table)
    with table.writer() as writer:
        vectors = [[float(n), 0.1] for n in range(9)]
        texts = [f"it's word{n} and more" for n in range(9)]
        writer.upsert(pa.table([range(9), vectors, texts], schema=SCHEMA))
        writer.flush()
    yield table
    table.close()


@pytest.mark.parametrize(
    ("call", "parameters"),
    [
        ("vector_search('t', 'v', $q, $k)", {"q": [3.2, 0.1], "k": 2}),
        ("vector_search('t', 'v', $q, k => $k)", {"q": np.array([3.2, 0.1]), "k": np.int64(2)}),
        ("vector_search('t', vector => [3.2, 0.1], k => 1 + 1, column => 'v')", {}),
        ("vector_search(\"table\" => $t, column => 'v', vector => $q, k => 2)", {"t": "t", "q": Q}),
        ("vector_search('t', 'v', $q, k => 2, exact => true)", {"q": pa.scalar([3.2, 0.1])}),
        ("vector_search('t', 'v', $q, 2, $o)", {"q": (3.2, 0.1), "o": {"exact": True}}),
        ("vector_search('t', 'v', $q, k => 2, options => {exact: true})", {"q": [3.2, 0.1]}),
        ("full_text_search('t', 'body', $words, k => 2)", {"words": "word3, word4, ain't"}),
        ("full_text_search('t', 'body', query => 'word3 word4')", {}),
    ],
)  # fmt: skip
def test_arguments_may_be_named_and_parameters(
    table: mw.Table, ctx: datafusion.SessionContext, call: str, parameters: dict[str, object]
) -> None:
    found = mw.sql(ctx, f"SELECT id FROM {call} s WHERE s.id < 5 ORDER BY id", **parameters)
    assert [row["id"] for row in found.to_pylist()] == [3, 4]


def test_text_is_no_call() -> None:
    text = "SELECT 'vector_search(1)', vector_search FROM t -- vector_search("
    assert parsed_query(SqlParser(), Text(text, text)).searches == []


def test_a_search_and_a_scan_read_one_snapshot(
    table: mw.Table, ctx: datafusion.SessionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    class _WithWrites(query_frames.SnapshotTable):
        """A row is replaced after each plan that reads it."""

        def planned(self, *args: object) -> object:
            plan = super().planned(*args)
            with table.writer() as writer:
                writer.delete(pa.table({"id": [3]}))
            return plan

    monkeypatch.setattr(query_frames, "SnapshotTable", _WithWrites)
    query = """
        SELECT t.id FROM vector_search('t', 'v', [3, 0.1], k => 1) s JOIN public.t ON s.id = t.id
    """
    assert mw.sql(ctx, query).to_pylist() == [{"id": 3}]
