"""Statements as their text and the parts of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwal_native.syntax import Delete, SqlParser
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.queries.parsed import Text, parsed, parsed_query

_WORDS = ["a", '"B b"', "'it''s'", "1.5", "$x", "é", "/* ( */", "-- )\n", "\n"]


@given(st.lists(st.sampled_from(_WORDS), min_size=1))
def test_every_token_stands_where_it_says(words: list[str]) -> None:
    text = "SELECT " + " ".join(words)
    written = [word for word in words if word.strip() and word[:2] not in ("/*", "--")]
    shown = "".join(text[start:end] for _, _, start, end in SqlParser.tokens(text))
    assert shown == "SELECT" + "".join(written)


@given(st.lists(st.sampled_from(_WORDS[-4:]), max_size=4))
def test_expressions_are_cut_out_of_the_text_as_they_are_written(blanks: list[str]) -> None:
    between = " " + " ".join(word for word in blanks if word != "é") + " "
    condition = f"a{between}IN (SELECT 1 WHERE b){between}AND c = 'é WHERE'"
    tree = SqlParser().statement(f"DELETE FROM t WHERE{between}{condition}{between}").tree
    assert isinstance(tree, Delete)
    assert tree.condition is not None
    assert tree.condition.text == condition


def test_names_are_in_lower_case_unless_quoted() -> None:
    for text, parts in (('Cat."My S".Tab', ["cat", "My S", "tab"]), ("ÄB", ["Äb"])):
        tree = SqlParser().statement(f"DELETE FROM {text} AS x").tree
        assert isinstance(tree, Delete)
        assert (tree.target.parts, tree.target.text, tree.alias) == (parts, text, "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no statement"),
        (" ; ", "no statement"),
        ("SELECT 1; SELECT 2", "line 1, column 9: ';'"),
        ("SELECT\n  'x", "line 2, column 3"),
        ("DELETE FROM t WHERE (a) = 1) OR (true", r"found: \), at line 1, column 28"),
    ],
)
def test_a_text_without_one_statement_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidCallError, match=message):
        parsed(SqlParser(), Text(text, text))


def test_tables_are_found_where_they_stand() -> None:
    text = 'WITH q AS (SELECT * FROM "T" é) SELECT * FROM q JOIN s.t AS z ON q.a = z.a JOIN t'
    places = parsed_query(SqlParser(), Text(text, text)).tables
    assert [(text[start:end], parts, alone) for start, end, parts, alone in places] == [
        ('"T"', ["T"], False),
        ("s.t", ["s", "t"], False),
        ("t", ["t"], True),
    ]
    with pytest.raises(InvalidCallError, match="at line 1, column 16: the end"):
        parsed_query(SqlParser(), Text("SELECT * FROM (", "SELECT * FROM ("))
