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
    log = {"match": {"terms": "log"}}
    table = {"match": {"terms": "table", "column": "title", "max_expansions": 3}}
    forms: dict[str, tuple[dict[str, Any], TextExpression]] = {
        "match": (table, Match("table", "title", max_expansions=3)),
        "phrase": ({"phrase": {"terms": "a b", "slop": 2}}, Phrase("a b", "body", 2)),
        "multi_match": (
            {"multi_match": {"query": "a", "columns": ["title", "body"], "boost": [2, 1]}},
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


X = {"match": {"query": "x"}}
Y = {"match": {"query": "y"}}
# Of every kind, what stands in it in other words, Lance's own among them.
SYNONYMS: dict[str, tuple[TextExpression, list[dict[str, Any]]]] = {
    "match": (
        Match("a b", "title", Operator.AND, 2.0, 1, 5, 1),
        [
            {"match": {key: "a b", "column": "title", "operator": operator, "boost": 2.0,
                       "fuzziness": 1, "max_expansions": 5, "prefix_length": 1, **granularity}}
            for key in ("query", "terms")
            for operator in ("AND", "and", "And")
            for granularity in ({}, {"document_granularity": None},
                                {"document_granularity": "row"})
        ],
    ),
    "phrase": (
        Phrase("a b", "title", 2),
        [
            {kind: {key: "a b", "column": "title", "slop": 2}}
            for kind in ("phrase", "match_phrase")
            for key in ("query", "terms")
        ],
    ),
    "multi_match": (
        MultiMatch("a", ("title", "body"), (2.0, 1.0), Operator.AND),
        [
            *(
                {"multi_match": {key: "a", "columns": ["title", "body"], boosts: [2.0, 1.0],
                                 "operator": "and"}}
                for key in ("query", "terms")
                for boosts in ("boost", "boosts")
            ),
            {"multi_match": {"match_queries": [
                {"terms": "a", "column": "title", "boost": 2.0, "operator": "AND"},
                {"query": "a", "operator": "and"},
            ]}},
        ],
    ),
    "combined_fields": (
        CombinedFields("a", ("title", "body"), (2.0, 1.0), Operator.AND),
        [
            {"combined_fields": {key: "a", "columns": ["title", "body"], boosts: [2.0, 1.0],
                                 "operator": "AND"}}
            for key in ("query", "terms")
            for boosts in ("boost", "boosts")
        ],
    ),
    "boost": (
        Boost(Match("x", "body"), Match("y", "body"), 0.5),
        [{"boost": {"positive": X, "negative": Y}},
         {"boost": {"positive": X, "negative": Y, "negative_boost": 0.5}}],
    ),
    "boolean": (
        Boolean((Match("x", "body"),), (Match("y", "body"),), (Match("y", "body"),)),
        [{"boolean": {"must": [X], "should": [Y], "must_not": [Y]}}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SYNONYMS)
def test_every_kind_is_taken_in_lance_s_words(kind: str) -> None:
    expected, forms = SYNONYMS[kind]
    for form in forms:
        assert parse(form) == expected, form
        assert parse(json.dumps(form)) == expected, form


@pytest.mark.parametrize(
    "other",
    [{"query": "b"}, {"query": "a", "operator": "AND"}, {"query": "a", "prefix_length": 1}],
)
def test_queries_of_one_multi_match_differ_in_column_and_boost_only(other: dict[str, Any]) -> None:
    queries = [{"query": "a", "column": "title"}, other]
    with pytest.raises(UnsupportedError, match=r"should of a boolean query"):
        parse({"multi_match": {"match_queries": queries}})
    fuzzy = [{"query": "a", "column": name, "fuzziness": 1} for name in COLUMNS]
    with pytest.raises(UnsupportedError, match="not fuzzy"):
        parse({"multi_match": {"match_queries": fuzzy}})


@pytest.mark.parametrize("kind", ["match", "phrase"])
def test_elements_of_lists_are_not_searched_one_by_one(kind: str) -> None:
    with pytest.raises(UnsupportedError, match="document_granularity='list_element'"):
        parse({kind: {"query": "a", "document_granularity": "list_element"}})


MATCH = {"match": {"terms": "x"}}
WRONG: list[tuple[object, str]] = [
    (3, "3"),
    (None, "None"),
    (["log"], "log"),
    ("{log}", "match"),
    ('{"match": ', "no JSON"),
    ("{}", "one key"),
    ({"match": {"terms": "x"}, "phrase": {"terms": "x"}}, "one key"),
    ({"march": {}}, "'march'"),
    ({"match": "x"}, "'x'"),
    ({"match": {"text": "x"}}, "needs 'query'"),
    ({"match": {"query": "x", "terms": "x"}}, "'query' and 'terms', which are the same"),
    ({"multi_match": {"query": "x", "columns": ["body"], "boost": [1], "boosts": [1]}}, "the same"),
    ({"multi_match": {"match_queries": []}}, "match_queries"),
    ({"multi_match": {"match_queries": ["x"]}}, "match_queries"),
    ({"multi_match": {"match_queries": [{"terms": "x", "columns": ["body"]}]}}, "'columns'"),
    ({"multi_match": {"match_queries": [{"terms": "x"}], "columns": ["body"]}}, "'columns'"),
    ({"match": {"terms": 3}}, "3"),
    ({"match": {"terms": "x", "fuzzy": 1}}, "'fuzzy'"),
    ({"match": {"terms": "x", "operator": "XOR"}}, "'XOR'"),
    ({"match": {"terms": "x", "boost": -1}}, "-1"),
    ({"match": {"terms": "x", "boost": "2"}}, "'2'"),
    ('{"match": {"terms": "x", "boost": NaN}}', "nan"),
    ('{"match": {"terms": "x", "boost": 1e999}}', "inf"),
    ({"match": {"terms": "x", "fuzziness": 1.5}}, "1.5"),
    ({"match": {"terms": "x", "fuzziness": True}}, "True"),
    ({"match": {"terms": "x", "max_expansions": -1}}, "-1"),
    ({"match": {"terms": "x", "minimum_should_match": 0}}, "0"),
    ({"match": {"terms": "x", "column": 3}}, "3"),
    ({"match": {"terms": "x", "column": "author"}}, "'author'"),
    ({"phrase": {"terms": "x", "slop": -1}}, "-1"),
    ({"multi_match": {"query": "x", "columns": []}}, "[]"),
    ({"multi_match": {"query": "x", "columns": "title"}}, "'title'"),
    ({"multi_match": {"query": "x", "columns": ["body", "body"]}}, "body"),
    ({"multi_match": {"query": "x", "columns": ["body"], "boost": [1, 2]}}, "2 boosts"),
    ({"combined_fields": {"query": "x", "columns": ["body"], "boost": [0.5]}}, "0.5"),
    ({"boost": {"positive": MATCH}}, "'negative'"),
    ({"boost": {"positive": MATCH, "negative": MATCH, "negative_boost": -1}}, "-1"),
    ({"boolean": {}}, "must or should"),
    ({"boolean": {"must_not": [MATCH]}}, "must or should"),
    ({"boolean": {"must": MATCH}}, "list"),
    ({"boolean": {"must": ["x"]}}, "'x'"),
    ('{"boolean": {"must": [' * 120 + '{"match": {"terms": "x"}}' + "]}}" * 120, "deeper"),
    ('{"a":' * 100_000, "deeper"),
]


@pytest.mark.parametrize(("query", "named"), WRONG, ids=range(len(WRONG)))
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
                "must": [{"match": {"terms": "a\nb", "operator": "AND", "boost": 2}}],
                "should": [{"phrase": {"terms": "x" * 100, "slop": 1}}],
                "must_not": [{"multi_match": {"query": "c", "columns": ["title", "body"]}}],
            }
        }
    )
    assert str(tree) == (
        'boolean(+match(body, "a\\nb", AND, boost=2), '
        f'phrase(body, "{"x" * 60}…", slop=1), -multi_match([title, body], "c"))'
    )
