"""BM25F: the texts of several columns of a row, scored as one (`query.CombinedFields`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from exec_nodes.text.postings.bm25 import Scores, token_scores
from exec_nodes.text.postings.protocol import Live, TextIndex
from exec_nodes.text.scoring.matches import Matches, Rows, locate, no_matches, sum_where
from exec_nodes.text.scoring.resolve import Fields, Token


def field_matches(
    fields: Fields, indexes: Mapping[str, TextIndex], live: Mapping[str, Live]
) -> Matches:
    """The live rows of a source that hold enough of the tokens, by row address."""
    parts = []
    for token in fields.tokens:
        found = _frequencies(token, fields, indexes, live)
        lengths = _lengths(found.rows, fields, indexes)
        scores = token_scores(found.scores, lengths, token.weight, fields.norms)
        parts.append(Matches(found.rows, scores))
    if len(parts) < fields.required or not parts:
        return no_matches(indexes[fields.columns[0]].addresses)
    return sum_where(parts, fields.required, None)


def _frequencies(
    token: Token, fields: Fields, indexes: Mapping[str, TextIndex], live: Mapping[str, Live]
) -> Matches:
    """The rows that hold a token in some column, with its weighted frequency as the score."""
    parts = []
    for column, weight in zip(fields.columns, fields.weights, strict=True):
        documents, frequencies = indexes[column].postings(token.text)
        rows = indexes[column].addresses[documents]
        matches = Matches(rows, frequencies.astype(np.float32) * weight)
        parts.append(matches.filter(live[column][documents]))
    return sum_where(parts, 1, None)


def _lengths(rows: Rows, fields: Fields, indexes: Mapping[str, TextIndex]) -> Scores:
    """The weighted length of each row; a column whose index has no such row adds nothing."""
    lengths = np.zeros(len(rows), np.float32)
    for column, weight in zip(fields.columns, fields.weights, strict=True):
        documents, found = locate(indexes[column].addresses, rows, None)
        own = indexes[column].lengths[documents[found]]
        lengths[found] += weight * own.astype(np.float32)
    return lengths
