"""Text queries as callers write them, and what they are told when they are wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lance import query as lance_query

from exec_nodes.base.errors import InvalidCallError, UnsupportedError
from exec_nodes.text.query.parse import parse_query
from exec_nodes.text.query.tree import (
    Boolean,
    Boost,
    CombinedFields,
    Match,
    MultiMatch,
    Operator,
    Phrase,
    TextExpression,
)
from tests.each import each
from tests.exec_nodes.text.trees import COLUMNS


def parse(query: object, **options: object) -> TextExpression:
    return parse_query(query, "body", COLUMNS, options)


def test_a_text_matches_any_of_its_words() -> None:
    assert parse("write ahead log") == Match("write ahead log", "body")
    assert parse("") == Match("", "body")
    assert parse("[1]") == Match("[1]", "body")


def test_options_of_a_text_are_keys_of_match() -> None:
    found = parse("log", operator="and", boost=2, fuzziness="auto", minimum_should_match=1)
    assert found == Match("log", "body", Operator.AND, 2, fuzziness=None, minimum_should_match=1)


def test_every_kind_has_a_json_form() -> None:
    log = {"match": {"query": "log"}}
    table = {"match": {"query": "table", "column": "title", "max_expansions": 3}}
    forms: dict[str, tuple[dict[str, Any], TextExpression]] = {
        "match": (table, Match("table", "title", max_expansions=3)),
        "phrase": ({"phrase": {"query": "a b", "slop": 2}}, Phrase("a b", "body", 2)),
        "multi_match": (
            {"multi_match": {"query": "a", "columns": ["title", "body"], "boosts": [2, 1]}},
            MultiMatch("a", ("title", "body"), (2, 1)),
        ),
        "combined_fields": (
            {"combined_fields": {"query": "a", "columns": ["title"], "operator": "AND"}},
            CombinedFields("a", ("title",), None, Operator.AND),
        ),
        "boost": (
            {"boost": {"positive": log, "negative": table, "negative_boost": 0.1}},
            Boost(Match("log", "body"), Match("table", "title", max_expansions=3), 0.1),
        ),
        "boolean": (
            {"boolean": {"must": [log], "must_not": [log], "minimum_should_match": 0}},
            Boolean((Match("log", "body"),), (), (Match("log", "body"),), 0),
        ),
    }
    for form, expected in forms.values():
        assert parse(form) == parse(json.dumps(form)) == parse(f"  {json.dumps(form)}") == expected


MATCH = {"match": {"query": "x"}}
WRONG: list[tuple[object, str]] = [
    (3, "3"),
    (None, "None"),
    (["log"], "log"),
    ("{log}", "plain=True"),
    ('{"match": ', "not JSON"),
    ("{}", "one key"),
    ({"match": {"query": "x"}, "phrase": {"query": "x"}}, "one key"),
    ({"march": {}}, "'march'"),
    ({"match": "x"}, "'x'"),
    ({"match": {"text": "x"}}, "needs 'query'"),
    ({"match": {"terms": "x"}}, "needs 'query'; it has 'terms'"),
    ({"match": {"query": "x", "terms": "x"}}, "'terms' is not a key"),
    ({"match_phrase": {"query": "x"}}, "'match_phrase'"),
    ({"match": {"query": "x", "document_granularity": "list_element"}}, "'document_granularity'"),
    ({"multi_match": {"query": "x", "columns": ["body"], "boost": [1]}}, "'boost' is not a key"),
    ({"multi_match": {"match_queries": [{"query": "x"}]}}, "needs 'query'"),
    ({"match": {"query": 3}}, "3"),
    ({"match": {"query": "x", "fuzzy": 1}}, "'fuzzy'"),
    ({"match": {"query": "x", "operator": "XOR"}}, "'XOR'"),
    ({"match": {"query": "x", "boost": -1}}, "-1"),
    ({"match": {"query": "x", "boost": "2"}}, "'2'"),
    ('{"match": {"query": "x", "boost": NaN}}', "nan"),
    ('{"match": {"query": "x", "boost": 1e999}}', "inf"),
    ({"match": {"query": "x", "fuzziness": 1.5}}, "1.5"),
    ({"match": {"query": "x", "fuzziness": True}}, "True"),
    ({"match": {"query": "x", "max_expansions": -1}}, "-1"),
    ({"match": {"query": "x", "minimum_should_match": 0}}, "0"),
    ({"match": {"query": "x", "column": 3}}, "3"),
    ({"match": {"query": "x", "column": "author"}}, "'author'"),
    ({"phrase": {"query": "x", "slop": -1}}, "-1"),
    ({"multi_match": {"query": "x", "columns": []}}, "[]"),
    ({"multi_match": {"query": "x", "columns": "title"}}, "'title'"),
    ({"multi_match": {"query": "x", "columns": ["body", "body"]}}, "body"),
    ({"multi_match": {"query": "x", "columns": ["body"], "boosts": [1, 2]}}, "2 boosts"),
    ({"combined_fields": {"query": "x", "columns": ["body"], "boosts": [0.5]}}, "0.5"),
    ({"boost": {"positive": MATCH}}, "'negative'"),
    ({"boost": {"positive": MATCH, "negative": MATCH, "negative_boost": -1}}, "-1"),
    ({"boolean": {}}, "must or should"),
    ({"boolean": {"must_not": [MATCH]}}, "must or should"),
    ({"boolean": {"must": MATCH}}, "list"),
    ({"boolean": {"must": ["x"]}}, "'x'"),
    ('{"boolean": {"must": [' * 120 + '{"match": {"query": "x"}}' + "]}}" * 120, "deeper"),
    ('{"a":' * 100_000, "deeper"),
]


@each("query, named", WRONG)
def test_a_wrong_query_is_refused_with_what_is_wrong(query: object, named: str) -> None:
    with pytest.raises(InvalidCallError) as caught:
        parse(query)
    assert named in str(caught.value)
    assert len(str(caught.value)) < 600


def test_options_belong_to_texts() -> None:
    with pytest.raises(InvalidCallError, match="operator"):
        parse(MATCH, operator="AND")
    with pytest.raises(InvalidCallError, match="'slop'"):
        parse("x", slop=1)


def test_a_query_without_column_needs_one_from_the_call() -> None:
    with pytest.raises(InvalidCallError, match="column"):
        parse_query("x", None, COLUMNS)


def test_objects_of_lance_are_refused_with_the_json_form() -> None:
    match = lance_query.MatchQuery("x", "body")
    made: dict[str, Any] = {
        "match": match,
        "phrase": lance_query.PhraseQuery("x", "body"),
        "multi_match": lance_query.MultiMatchQuery("x", ["body"]),
        "combined_fields": lance_query.CombinedFieldsQuery("x", ["body"]),
        "boost": lance_query.BoostQuery(match, match),
        "boolean": match & match,
    }
    for kind, query in made.items():
        with pytest.raises(UnsupportedError, match=rf'JSON form, such as {{"{kind}": {{'):
            parse(query)


def test_a_tree_prints_on_one_line() -> None:
    tree = parse(
        {
            "boolean": {
                "must": [{"match": {"query": "a\nb", "operator": "AND", "boost": 2}}],
                "should": [{"phrase": {"query": "x" * 100, "slop": 1}}],
                "must_not": [{"multi_match": {"query": "c", "columns": ["title", "body"]}}],
            }
        }
    )
    assert str(tree) == (
        'boolean(+match(body, "a\\nb", AND, boost=2), '
        f'phrase(body, "{"x" * 60}…", slop=1), -multi_match([title, body], "c"))'
    )
