"""What `create_index` is told of a full-text index, checked before Lance reads a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lance
import pyarrow as pa

from memwal_sql.errors import InvalidCallError

TEXT_KINDS = ("FTS", "INVERTED")

_ANALYZER = (
    "analyzer",
    "base_tokenizer",
    "language",
    "max_token_length",
    "lower_case",
    "stem",
    "remove_stop_words",
    "custom_stop_words",
    "ascii_folding",
    "min_ngram_length",
    "max_ngram_length",
    "prefix_only",
    "split_identifiers",
    "split_on_numerics",
    "preserve_original",
    "index_operators",
)
_BUILD = ("with_position", "memory_limit", "num_workers")
# These keep exact document lengths, on which scores depend: larger blocks round them.
_BLOCK_SIZE = 128
_FORMAT, _FORMAT_OF_CODE = 2, 3


def text_arguments(field: pa.Field, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of Lance's `create_scalar_index` for a full-text index.

    Raises InvalidCallError for a column that is not text and for what Lance's analyzers refuse.
    """
    if not (pa.types.is_string(field.type) or pa.types.is_large_string(field.type)):
        raise InvalidCallError(
            f"column {field.name!r} is {field.type}; a full-text index needs a string column"
        )
    known = (*_ANALYZER, *_BUILD)
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise InvalidCallError(
            f"unknown parameters {unknown} of a full-text index; it has {list(known)}"
        )
    # None is the analyzer's default, but for this one, where it means any length.
    given = {n: v for n, v in parameters.items() if v is not None or n == "max_token_length"}
    analyzer = {name: value for name, value in given.items() if name in _ANALYZER}
    try:
        lance.tokenize("a", **analyzer)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        raise InvalidCallError(f"the analyzer {analyzer} can't be used: {error}") from error
    code = "code" in (analyzer.get("analyzer"), analyzer.get("base_tokenizer"))
    version = _FORMAT_OF_CODE if code else _FORMAT
    return {**given, "block_size": _BLOCK_SIZE, "format_version": version}
