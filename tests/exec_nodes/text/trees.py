"""Random texts, and random queries twice: as our tree and as Lance's."""

from __future__ import annotations

from random import Random

from lance import query as lance_query

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

_WORDS = """
write ahead log logs table tables lance lances region regio merge merges merged flush flash row
rows raw key keys the of a und für über straße strasse schreiben лог логи запись записи таблица 日志
写入 表 テーブル ログ سجل كتابة سجلات कुंजी लॉग 한국어 로그 café cafe naïve x xy xyz
writeLog write_log ahead_log LogTable log2table
"""
WORDS = _WORDS.split()
COLUMNS = ("title", "body")

Pair = tuple[TextExpression, lance_query.FullTextQuery]


def random_text(rng: Random, longest: int = 12) -> str | None:
    """A text; sometimes null, empty, or of stop words only."""
    kind = rng.random()
    if kind < 0.06:
        return None
    if kind < 0.12:
        return rng.choice(("", " ", "...", "the", "the of a"))
    return " ".join(_word(rng) for _ in range(rng.randint(1, longest)))


def random_query(rng: Random, columns: tuple[str, ...] = COLUMNS, depth: int = 2) -> Pair:
    """A tree of up to so many levels of clauses."""
    leaves = [_match, _match, _fuzzy, _phrase]
    if len(columns) > 1:
        leaves.append(_multi_match)
    if depth == 0 or rng.random() < 0.4:
        return rng.choice(leaves)(rng, columns)
    return rng.choice((_boolean, _boolean, _boost))(rng, columns, depth - 1)


def random_combined(rng: Random, columns: tuple[str, ...] = COLUMNS) -> Pair:
    """A combined_fields query, which Lance has at the top of a tree only."""
    text, operator = _text(rng), rng.choice(tuple(Operator))
    weights = tuple(rng.choice((1.0, 2.5, 7.0)) for _ in columns)
    theirs = lance_query.CombinedFieldsQuery(
        text,
        list(columns),
        boosts=list(weights),
        operator=lance_query.FullTextOperator(operator.value),
    )
    return CombinedFields(text, columns, weights, operator), theirs


def _word(rng: Random) -> str:
    """Common words are far commoner than rare ones."""
    return WORDS[min(int(rng.expovariate(0.12)), len(WORDS) - 1)]


def _text(rng: Random) -> str:
    return " ".join(_word(rng) for _ in range(rng.choice((0, 1, 1, 2, 3, 4))))


def _match(rng: Random, columns: tuple[str, ...]) -> Pair:
    text, column, operator = _text(rng), rng.choice(columns), rng.choice(tuple(Operator))
    boost = rng.choice((1.0, 1.0, 0.0, 2.5))
    theirs = lance_query.MatchQuery(
        text, column, boost=boost, operator=lance_query.FullTextOperator(operator.value)
    )
    return Match(text, column, operator, boost), theirs


def _fuzzy(rng: Random, columns: tuple[str, ...]) -> Pair:
    text, column, operator = _text(rng), rng.choice(columns), rng.choice(tuple(Operator))
    options = {
        "fuzziness": rng.choice((1, 1, 2)),
        "max_expansions": rng.choice((50, 50, 3)),
        "prefix_length": rng.choice((0, 0, 1, 2)),
    }
    theirs = lance_query.MatchQuery(
        text, column, operator=lance_query.FullTextOperator(operator.value), **options
    )
    return Match(text, column, operator, **options), theirs


def _phrase(rng: Random, columns: tuple[str, ...]) -> Pair:
    text, column = (
        " ".join(_word(rng) for _ in range(rng.choice((1, 2, 2, 3)))),
        rng.choice(columns),
    )
    return Phrase(text, column), lance_query.PhraseQuery(text, column)


def _multi_match(rng: Random, columns: tuple[str, ...]) -> Pair:
    text, operator = _text(rng), rng.choice(tuple(Operator))
    boosts = rng.choice((None, tuple(rng.choice((1.0, 0.5, 3.0)) for _ in columns)))
    theirs = lance_query.MultiMatchQuery(
        text,
        list(columns),
        boosts=None if boosts is None else list(boosts),
        operator=lance_query.FullTextOperator(operator.value),
    )
    return MultiMatch(text, columns, boosts, operator), theirs


def _boolean(rng: Random, columns: tuple[str, ...], depth: int) -> Pair:
    occurs = [rng.choice(("must", "should", "should", "must_not")) for _ in range(3)]
    occurs.append(rng.choice(("must", "should")))
    clauses = [(occur, random_query(rng, columns, depth)) for occur in occurs]
    ours = {
        name: tuple(mine for occur, (mine, _) in clauses if occur == name)
        for name in ("must", "should", "must_not")
    }
    theirs = [(lance_query.Occur(occur.upper()), query) for occur, (_, query) in clauses]
    return Boolean(**ours), lance_query.BooleanQuery(theirs)


def _boost(rng: Random, columns: tuple[str, ...], depth: int) -> Pair:
    positive, theirs = random_query(rng, columns, depth)
    negative, their_negative = random_query(rng, columns, depth)
    factor = rng.choice((0.0, 0.5, 2.0))
    return (
        Boost(positive, negative, factor),
        lance_query.BoostQuery(theirs, their_negative, negative_boost=factor),
    )
