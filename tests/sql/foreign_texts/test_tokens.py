"""Statements as their text and tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwal_native import SqlParser
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.queries.tokens import statement_of

_WORDS = [
    "a",
    '"B b"',
    "'it''s'",
    "1.5",
    "$x",
    "(",
    ")",
    ",",
    "<->",
    "é",
    "/* ( */",
    "-- )\n",
    "\n",
]


@given(st.lists(st.sampled_from(_WORDS), min_size=1))
def test_every_token_stands_where_it_says(words: list[str]) -> None:
    words = ["("] * words.count(")") + words  # as one that ends nothing is refused
    text = "SELECT " + " ".join(words)
    known = [word for word in words if word.strip() and word[:2] not in ("/*", "--")]
    parsed = statement_of(text)
    found = parsed.slice(0, len(parsed))
    assert found in text
    shown = "".join(text[token.start : token.end] for token in parsed.tokens)
    assert shown == "SELECT" + "".join(known)


def test_a_clause_is_found_outside_of_parentheses_alone() -> None:
    parsed = statement_of("DELETE FROM t WHERE a IN (SELECT 1 WHERE b) AND c = 'WHERE'")
    where = parsed.find("WHERE")
    assert parsed.slice(where + 1, len(parsed)) == "a IN (SELECT 1 WHERE b) AND c = 'WHERE'"
    assert parsed.find("WHERE", where + 1) == len(parsed)
    assert parsed.find("RETURNING", 0, 5) == 5


def test_parts_between_commas_keep_what_is_nested() -> None:
    parsed = statement_of("a, f(b, c), {x: 1, y: [2, 3]}")
    parts = [parsed.slice(*part) for part in parsed.split(0, len(parsed))]
    assert parts == ["a", "f(b, c)", "{x: 1, y: [2, 3]}"]
    with pytest.raises(InvalidCallError, match="nothing between two commas, at line 1, column 4"):
        trailing = statement_of("a, ,b")
        trailing.split(0, len(trailing))


def test_names_are_in_lower_case_unless_quoted() -> None:
    assert statement_of('Cat."My S".Tab x').table(0) == (("cat", "My S", "tab"), 5)
    assert statement_of("ÄB").table(0) == (("Äb",), 1)  # as DataFusion takes it


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no statement"),
        (" ; ", "no statement"),
        ("SELECT 1; SELECT 2", "line 1, column 9: ';'"),
        ("SELECT\n  'x", "line 2, column 3"),
        ("DELETE FROM t WHERE (a) = 1) OR (true", "ends nothing, at line 1, column 28"),
        (5, "no SQL statement"),
    ],
)
def test_a_text_without_one_statement_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidCallError, match=message):
        statement_of(text)


def test_tables_are_found_where_they_stand() -> None:
    text = 'WITH q AS (SELECT * FROM "T" é) SELECT * FROM q JOIN s.t AS z ON q.a = z.a JOIN t'
    places = SqlParser().statements(text).tables()
    assert [(text[start:end], parts, alone) for start, end, parts, alone in places] == [
        ('"T"', ["T"], False),
        ("s.t", ["s", "t"], False),
        ("t", ["t"], True),
    ]
    assert SqlParser().statements("SELECT * FROM (") is None
