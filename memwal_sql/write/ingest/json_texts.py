"""Columns of JSON texts, and which texts they take."""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

import pyarrow as pa

from memwal_sql.errors import InvalidCallError

_JSON = "arrow.json"
# Lance's parser has no limit, and ends the process when the stack overflows.
_DEEPEST = 200
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def is_json(kind: pa.DataType) -> bool:
    """Whether the values of a column are JSON texts."""
    return isinstance(kind, pa.BaseExtensionType) and kind.extension_name == _JSON


def check_json(column: pa.Array, name: str) -> None:
    """Raise InvalidCallError naming the row and the text if it is not JSON, repeats a name in an
    object, or nests too deep, as Lance parses the texts that it writes."""
    for row, text in enumerate(column.storage.to_pylist()):
        if text is None:
            continue
        try:
            if text.count("[") + text.count("{") > _DEEPEST and _depth(text) > _DEEPEST:
                raise ValueError(f"it nests more than {_DEEPEST} levels deep")
            json.loads(text, parse_constant=_no_number, object_pairs_hook=_distinct)
        except ValueError as error:
            raise InvalidCallError(
                f"column {name!r}: {_short(text)} in row {row} is not JSON: {error}"
            ) from None


def _no_number(name: str) -> None:
    raise ValueError(f"JSON has no {name}, write null")


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"{names} repeats a name")


def _depth(text: str) -> int:
    """The depth of lists and objects in a JSON text."""
    steps = ((c in "[{") - (c in "]}") for c in _STRING.sub("", text))
    return max(accumulate(steps), default=0)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
