"""A plain text is words; EXPLAIN shows which."""

from __future__ import annotations

from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.model.writing import session_of

ROWS = {1: "the fox", 2: "the dog", 3: "fox and dog", 4: "a quick brown cat", 5: "brown quick cat"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mw.Table:
    vector = pa.list_(pa.float32(), 2)
    schema = pa.schema({"id": pa.int64(), "body": pa.string(), "title": pa.string(), "v": vector})
    table = mw.create_table(tmp_path_factory.mktemp("plain") / "t", schema, "id")
    with table.writer() as writer:
        writer.upsert(
            {
                "id": list(ROWS),
                "body": list(ROWS.values()),
                "title": [""] * len(ROWS),
                "v": [[1.0, 0.0]] * len(ROWS),
            }
        )
    return table


def ids(table: mw.Table, query: Any, column: Any = "body", **options: Any) -> list[int]:
    return sorted(table.full_text_search(column, query, 10, **options)["id"].to_pylist())


def sql(table: mw.Table, query: str, column: str = "'body'") -> datafusion.DataFrame:
    context = session_of("t", table)
    text = query.replace("'", "''")
    return context.sql(f"SELECT id FROM full_text_search('t', {column}, '{text}', 10)")


@each("query", ["fox AND dog", "NOT fox dog", '"dog" fox', "+fox -dog"])
def test_operators_are_words(table: mw.Table, query: str) -> None:
    expected = ids(table, "fox dog")
    assert expected == ids(table, query) == ids(table, query, ["body", "title"])
    for column in ("'body'", "['body', 'title']"):
        assert sorted(sql(table, query, column).to_arrow_table()["id"].to_pylist()) == expected


def test_the_forms_that_are_named_do_what_the_operators_meant(table: mw.Table) -> None:
    fox, dog = ({"match": {"query": word}} for word in ("fox", "dog"))
    assert ids(table, "fox dog") == [1, 2, 3]
    assert ids(table, "fox dog", operator="AND") == [3]
    assert ids(table, {"boolean": {"must": [fox], "must_not": [dog]}}) == [1]
    assert ids(table, {"phrase": {"query": "quick brown"}}) == [4]


@each(
    "query, tokens",
    [
        ("fox and Dogs", 'tokens=["fox", "dog"]'),
        ('{"match": {"query": "Fox dog", "fuzziness": 1}}', 'tokens=["Fox", "dog"]'),
        ('{"phrase": {"query": "the quick fox"}}', 'tokens=["quick", "fox"]'),
        (
            '{"boolean": {"must": [{"match": {"query": "fox"}}], "must_not": [{"match": '
            '{"query": "dogs"}}]}}',
            'tokens=["fox" | "dog"]',
        ),
        ('{"multi_match": {"query": "fox", "columns": ["body", "title"]}}', 'tokens=["fox"]'),
        ('{"combined_fields": {"query": "a fox", "columns": ["body", "title"]}}', 'tokens=["fox"]'),
        ("the", "tokens=[]"),
        (" ".join(f"w{n}" for n in range(30)), '"w19", …]'),
    ],
)
def test_explain_shows_what_a_query_is_taken_for(table: mw.Table, query: str, tokens: str) -> None:
    context = session_of("t", table)
    plan = context.sql(f"EXPLAIN SELECT id FROM full_text_search('t', 'body', '{query}', 10)")
    assert tokens in plan.to_pylist()[-1]["plan"]
