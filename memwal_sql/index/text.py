"""The parameters of a full-text index, checked before Lance reads a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import lance
import pyarrow as pa

from exec_nodes.arrow.text_columns import text_paths
from memwal_sql.errors import InvalidCallError
from memwal_sql.index.kinds import AnalyzerParameters, TextParameters

_SWITCHES = frozenset(
    name for name, kind in get_type_hints(TextParameters).items() if kind == bool | None
)
_OF_RUST = re.compile(r", \S+\.rs:\d+:\d+$")  # where in Lance it was raised
# These keep exact document lengths, on which scores depend: larger blocks round them.
_BLOCK_SIZE = 128
_FORMAT, _FORMAT_OF_CODE = 2, 3


def text_arguments(schema: pa.Schema, column: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of Lance's `create_scalar_index` for a full-text index.

    Raises InvalidCallError for a column without texts and for what Lance's analyzers refuse.
    """
    texts = text_paths(schema)
    if column not in texts:
        raise InvalidCallError(
            f"column={column!r} has no texts for a full-text index; there are texts in {texts}"
        )
    names = TextParameters.__annotations__
    unknown = sorted(set(parameters) - set(names))
    if unknown:
        raise InvalidCallError(
            f"unknown parameters {unknown} of a full-text index; it has {list(names)}"
        )
    # None is the analyzer's default, but for this one, where it means any length.
    set_parameters = {
        n: v for n, v in parameters.items() if v is not None or n == "max_token_length"
    }
    analyzer = {n: v for n, v in set_parameters.items() if n in AnalyzerParameters.__annotations__}
    for name, value in set_parameters.items():
        if name in _SWITCHES and not isinstance(value, bool):
            raise InvalidCallError(f"{name}={value!r} must be true or false")
    try:
        lance.tokenize("a", **analyzer)
    except (ValueError, TypeError, OverflowError, OSError) as error:
        reason = _OF_RUST.sub("", str(error))
        raise InvalidCallError(f"the analyzer {analyzer} can't be used: {reason}") from error
    code = "code" in (analyzer.get("analyzer"), analyzer.get("base_tokenizer"))
    version = _FORMAT_OF_CODE if code else _FORMAT
    return {**set_parameters, "block_size": _BLOCK_SIZE, "format_version": version}
