"""A plain text is words; what looks like operators in it is warned of and shown as what it is."""

from __future__ import annotations

import warnings
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
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


SYNTAX = [
    ("fox AND dog", 'AND, OR and NOT .*operator="AND"', "fox dog"),
    ("fox OR dog", "AND, OR and NOT", "fox dog"),
    ("fox NOT dog", "AND, OR and NOT", "fox dog"),
    ("NOT dog", "AND, OR and NOT", "dog"),
    ('"quick brown" fox', "quotation marks .*phrase", "quick brown fox"),
    ("fox -dog", r"\+ and - .*must_not", "fox dog"),
    ("+fox dog", r"\+ and - .*must_not", "fox dog"),
]


@pytest.mark.parametrize(("query", "said", "same"), SYNTAX)
def test_operators_are_words_and_warned_of(
    table: mw.Table, query: str, said: str, same: str
) -> None:
    expected = ids(table, same)
    with pytest.warns(mw.PlainTextWarning, match=said):
        assert ids(table, query) == expected
    with pytest.warns(mw.PlainTextWarning, match=said):
        assert ids(table, query, ["body", "title"]) == expected
    with pytest.warns(mw.PlainTextWarning, match=said) as told:
        table.hybrid_search("v", [1.0, 0.0], "body", query, 10)
    assert [one.filename for one in told] == [__file__]
    for column in ("'body'", "['body', 'title']"):
        with pytest.warns(mw.PlainTextWarning, match=said) as told:
            found = sql(table, query, column)
        assert [one.filename for one in told] == [__file__]
        assert sorted(found.to_arrow_table()["id"].to_pylist()) == expected


@pytest.mark.parametrize(
    "query",
    [
        "fox and dog",
        "rock'n'roll",
        "TO BE OR NOT TO BE",
        "and or not",
        "AND",
        "well-known -- half",
        'a 5" disk',
        "fox - dog",
        "C++ -",
        "",
        "ORANGE ANDES",
        '{"match": {"query": "fox AND dog"}}',
        {"phrase": {"query": '"quick brown"'}},
    ],
)
def test_ordinary_texts_and_the_json_form_are_not_warned_of(table: mw.Table, query: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids(table, query)


def test_the_forms_that_are_named_do_what_the_operators_meant(table: mw.Table) -> None:
    fox, dog = ({"match": {"query": word}} for word in ("fox", "dog"))
    assert ids(table, "fox dog") == [1, 2, 3]
    assert ids(table, "fox dog", operator="AND") == [3]
    assert ids(table, {"boolean": {"must": [fox], "must_not": [dog]}}) == [1]
    assert ids(table, {"phrase": {"query": "quick brown"}}) == [4]


def test_a_warning_holds_no_text_that_a_process_would_remember(table: mw.Table) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(3):
            ids(table, f"fox{number} AND dog")
    assert len({str(one.message) for one in caught}) == 1


@pytest.mark.parametrize(
    ("query", "tokens"),
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
