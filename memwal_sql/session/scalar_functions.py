"""Functions that sessions with MemWAL tables have in addition to DataFusion's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionContext, udf

from exec_nodes.arrow.arrays import Mask, is_text
from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.sources.source import Source
from exec_nodes.text.scoring.open import SOURCE_TEXTS
from memwal_native import remember
from memwal_native.syntax import SqlParser
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.session.errors import original_error
from planner.model import Snapshot
from planner.predicates.condition import Condition
from planner.predicates.expr import Call, Literal, Operand
from planner.search.full_text import analyzer_of, index_of

MATCH = "match"
_SUBQUERY = "put match into a subquery, JOIN (SELECT * FROM t WHERE match(...)) AS t"
_VECTOR = pa.list_(pa.float64())
# The native library recognizes this `match`, and not a user's, by the name of its result.
_MATCHED = pa.field("match of memwal_sql", pa.bool_())


class Words(Thresholds):
    """Of `match`: the most characters that its words have, and the most bytes of them that
    DataFusion repeats at once, as it makes a value per row of a constant."""

    most = 10_000
    repeated_bytes = 8 << 20


class _Analyzing(threading.local):
    """The analyzers by which this thread evaluates a condition, if it does."""

    analyzers: Sequence[Analyzer] | None = None


_analyzing = _Analyzing()


def register_scalar_functions(ctx: SessionContext) -> None:
    """Register the functions in a session, except those whose names it has already."""
    texts, vectors = [pa.string(), pa.string()], [_VECTOR, _VECTOR]
    for name, function, arguments, result in (
        (MATCH, match, texts, _MATCHED),
        ("l2_distance", l2_distance, vectors, pa.field("l2_distance", pa.float64())),
    ):
        try:
            ctx.udf(name)
        except KeyError:
            ctx.register_udf(udf(function, arguments, result, "stable", name))


def calls_match(condition: Condition) -> bool:
    """Whether a condition calls this `match`, and not a user's function of that name."""
    return condition.native is not None and condition.native.calls(MATCH, _MATCHED.name)


@dataclass(frozen=True)
class TextMatches:
    """The texts that the conditions of one scan match.

    Attributes:
        literals: for each condition that calls `match`, its literal texts and the analyzers.
    """

    literals: frozenset[tuple[frozenset[str], frozenset[Analyzer]]]

    def check_beside(self, other: TextMatches) -> None:
        """Raise UnsupportedError if a condition of a joined scan may be a copy of one of these.

        DataFusion copies conditions over the equal columns of a join, and a copy looks like a
        condition of the user. A copy means the same if both scans tokenize texts in the same way.
        """
        for texts, analyzers in self.literals:
            for others, by in other.literals:
                if analyzers != by and (texts & others or not texts or not others):
                    raise UnsupportedError(
                        f"match(column, {min(texts & others, default='...')!r}) would also reach a "
                        "joined table whose texts are tokenized differently, as DataFusion applies "
                        f"it to columns that equal the column: {_SUBQUERY}. If both are to match, "
                        "add a space to the words of one"
                    )


def text_matches(conditions: Iterable[Condition], snapshot: Snapshot) -> TextMatches | None:
    """The texts that these conditions of a scan match; None if they do not call `match`."""
    matching = [
        condition for condition in conditions if condition.lance is None and calls_match(condition)
    ]
    if not matching:
        return None
    return TextMatches(
        frozenset(
            (_literals(condition.text), frozenset(_analyzers(condition, snapshot)))
            for condition in matching
        )
    )


def _literals(condition: str) -> frozenset[str]:
    try:
        tokens = SqlParser.tokens(condition)
        return frozenset(value for kind, value, *_ in tokens if kind == "string")
    except ValueError:
        return frozenset()


def analyzed(conditions: Iterable[Condition], snapshot: Snapshot) -> tuple[Condition, ...]:
    """The conditions with the analyzers of the columns whose texts they match."""
    return tuple(_analyzed(condition, snapshot) for condition in conditions)


def _analyzed(condition: Condition, snapshot: Snapshot) -> Condition:
    if condition.lance is not None or not calls_match(condition):
        return condition
    analyzers = _analyzers(condition, snapshot)
    rows = _indexed(condition, analyzers, snapshot)
    longest = max(map(len, _literals(condition.text)), default=0)
    evaluate = partial(_evaluate, condition, analyzers, longest)
    return replace(condition, evaluate=evaluate, rows=rows, native=None)


def _analyzers(condition: Condition, snapshot: Snapshot) -> tuple[Analyzer, ...]:
    kinds = {name: snapshot.info.schema.field(name).type for name in condition.columns}
    structs = [name for name, kind in kinds.items() if pa.types.is_struct(kind)]
    if structs:
        raise InvalidCallError(
            "match(column, 'words') is about a column of texts, and its condition reads the struct "
            f"{structs[0]!r}: find texts in structs by full_text_search, and join other conditions "
            "on structs by AND"
        )
    columns = [name for name in kinds if is_text(kinds[name])]
    return tuple(dict.fromkeys(analyzer_of(name, snapshot) for name in columns))


def _indexed(
    condition: Condition, analyzers: Sequence[Analyzer], snapshot: Snapshot
) -> Callable[[Source], RowAddresses] | None:
    """`Filter.rows` for `match(column, 'words')` on a column with a full-text index."""
    match condition.predicate:
        case Call(function, Operand(column, casts), Literal(_, str(words))) if (
            function == MATCH
            and all(map(is_text, casts))
            and index_of(column, snapshot) is not None
        ):
            tokens = frozenset(_tokens(analyzers[0], words))
            return partial(SOURCE_TEXTS.rows, column=column, analyzer=analyzers[0], tokens=tokens)
    return None


def _evaluate(
    condition: Condition, analyzers: Sequence[Analyzer], longest: int, batch: pa.RecordBatch
) -> pa.BooleanArray:
    """The condition's answers; `longest` is the number of characters of its longest constant."""
    step = max(Words.repeated_bytes // (longest + 1), 1)
    with _by(analyzers):
        try:
            if len(batch) <= step:
                return condition.evaluate(batch)
            starts = range(0, len(batch), step)
            return pa.concat_arrays(
                [condition.evaluate(batch.slice(start, step)) for start in starts]
            )
        except RuntimeError as error:  # of the native library, with the text of the one in `match`
            original = original_error(error)
            if original is None:
                raise
            raise original from error


@contextmanager
def _by(analyzers: Sequence[Analyzer]) -> Iterator[None]:
    _analyzing.analyzers = analyzers
    try:
        yield
    finally:
        _analyzing.analyzers = None


def match(texts: pa.Array, queries: pa.Array) -> pa.Array:
    """Whether each text has all tokens of its query; false for a query without tokens, null for
    null. The column's analyzer makes the tokens.

    Raises UnsupportedError if the analyzer is unknown, as DataFusion itself calls this.
    """
    with _remembered():
        return _matched(texts, queries)


def _matched(texts: pa.Array, queries: pa.Array) -> pa.Array:
    analyzer = _analyzer()
    matched = np.zeros(len(texts), np.bool_)
    for query in pc.unique(queries.drop_null()):
        tokens = pa.array(sorted(_tokens(analyzer, query.as_py())), pa.string())
        rows = pc.fill_null(pc.equal(queries, query), False).to_numpy(zero_copy_only=False)
        places = np.flatnonzero(rows)
        if len(tokens):
            matched[places] = _have_all(analyzer, texts.take(pa.array(places)), tokens)
    is_valid = pc.and_(texts.is_valid(), queries.is_valid())
    return pc.if_else(is_valid, pa.array(matched), pa.scalar(None, pa.bool_()))


def _tokens(analyzer: Analyzer, words: str) -> set[str]:
    if len(words) > Words.most:
        raise InvalidCallError(
            f"match takes words of at most {Words.most:,} characters, and these have "
            f"{len(words):,}: leave some out, or search by full_text_search"
        )
    return set(analyzer.tokens(words))


def _analyzer() -> Analyzer:
    analyzers = _analyzing.analyzers
    if analyzers is None:
        raise UnsupportedError(
            "match(column, 'words') is for WHERE, on a column of one registered table: elsewhere "
            "DataFusion would evaluate it, which does not know how the column's texts are "
            "tokenized. DataFusion also applies it to columns that a join says equal the column: "
            f"{_SUBQUERY}"
        )
    if not analyzers:
        raise InvalidCallError(
            "match(column, 'words') is about texts, and its condition has no column of texts"
        )
    if len(analyzers) != 1:
        raise UnsupportedError(
            "the texts of this condition's columns are tokenized in different ways: give every "
            "match(...) a condition of its own, joined by AND"
        )
    return analyzers[0]


def _have_all(analyzer: Analyzer, texts: pa.Array, tokens: pa.Array) -> Mask:
    text_tokens, lengths = analyzer.tokens_of(texts)
    places = pc.index_in(pa.array(text_tokens, pa.string()), value_set=tokens)
    is_token = places.is_valid().to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(texts)), lengths)[is_token]
    has_token = np.zeros((len(texts), len(tokens)), np.bool_)
    has_token[rows, places.drop_null().to_numpy()] = True
    return np.asarray(has_token.all(axis=1))


def l2_distance(left: pa.Array, right: pa.Array) -> pa.Array:
    """DataFusion's `array_distance` under another name: the Euclidean distance of each pair of
    lists; null if one of them, or an element, is null."""
    with _remembered():
        return _distances(left, right)


@contextmanager
def _remembered() -> Iterator[None]:
    """Remembers errors raised for DataFusion's bindings, which keep only their text."""
    try:
        yield
    except BaseException as error:
        remember(error)
        raise


def _distances(left: pa.Array, right: pa.Array) -> pa.Array:
    is_valid = pc.and_(left.is_valid(), right.is_valid())
    lefts, rights = left.filter(is_valid), right.filter(is_valid)
    lengths = pc.list_value_length(lefts)
    if not lengths.equals(pc.list_value_length(rights)):
        raise InvalidCallError("l2_distance needs lists of the same length")
    differences = pc.subtract(lefts.flatten(), rights.flatten())
    rows = np.repeat(np.arange(len(lefts)), lengths.to_numpy())
    void = np.zeros(len(lefts), np.bool_)
    void[rows[differences.is_null().to_numpy(zero_copy_only=False)]] = True
    numbers = pc.fill_null(differences, 0.0).to_numpy()
    distances = np.sqrt(np.bincount(rows, numbers * numbers, len(lefts)))
    result = np.full(len(left), np.nan)
    empty = np.ones(len(left), np.bool_)
    place = np.flatnonzero(is_valid.to_numpy(zero_copy_only=False))
    result[place], empty[place] = distances, void
    return pa.array(result, mask=empty)
