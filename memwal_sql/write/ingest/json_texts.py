"""Columns of JSON texts: which texts they take, and in which form.

Lance stores binary JSON and gives back a text of its own making: names in order, no spaces, numbers
as 64-bit integers or doubles. Rows in memory and in the log have that text too, or a value would
change when its MemTable is flushed.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from itertools import accumulate
from math import isinf
from typing import Any

import lance
import pyarrow as pa

from memwal_sql.errors import InvalidCallError

# Lance's parser has no limit, and ends the process when the stack overflows.
_DEEPEST = 200
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
# A number with as many digits says which double it is.
_DIGITS = 17
_INTEGERS = range(-(2**63), 2**64)
_INTEGER_DIGITS = 20
_REMEDY = "give it as a text"


class _ChangedError(ValueError):
    """A value would become another one."""


def stored_json(column: pa.Array, name: str) -> pa.Array:
    """The texts as Lance gives them back once it has stored them.

    Raises InvalidCallError naming the row and the text if it is not JSON, repeats a name in an
    object, nests too deep, or has a number or a character that would be another one.
    """
    texts = column.storage.to_pylist()
    for row, text in enumerate(texts):
        try:
            if text is not None:
                _check(text)
        except ValueError as error:
            what = "can't be stored as it is" if isinstance(error, _ChangedError) else "is not JSON"
            raise InvalidCallError(
                f"column {name!r}: {_short(text)} in row {row} {what}: {error}"
            ) from None
    if column.null_count == len(column):
        return column
    written = pa.table({"j": pa.array(texts, pa.json_())})
    dataset = lance.write_dataset(written, "memory://", data_storage_version="stable")
    stored = dataset.to_table()["j"].combine_chunks().storage.cast(column.type.storage_type)
    return column.type.wrap_array(stored)


def _check(text: str) -> None:
    if text.count("[") + text.count("{") > _DEEPEST and _depth(text) > _DEEPEST:
        raise ValueError(f"it nests more than {_DEEPEST} levels deep")
    value = json.loads(
        text,
        parse_constant=_no_number,
        parse_int=_integer,
        parse_float=_double,
        object_pairs_hook=_distinct,
    )
    if "\\u" in text and not _is_unicode(value):
        raise _ChangedError("it has half of a surrogate pair, which is no character")


def _no_number(name: str) -> None:
    raise ValueError(f"JSON has no {name}, write null")


def _integer(digits: str) -> int:
    if len(digits) > _INTEGER_DIGITS or int(digits) not in _INTEGERS:
        raise _ChangedError(f"{_short(digits)} is beyond 64 bits: {_REMEDY}")
    return 0


def _double(digits: str) -> float:
    value = float(digits)
    if isinf(value):
        raise _ChangedError(f"{_short(digits)} is beyond the range of a double: {_REMEDY}")
    if len(digits) <= _DIGITS and value:
        return value
    exact = Decimal(digits)
    if (not value and exact) or (
        len(exact.normalize().as_tuple().digits) > _DIGITS and exact != Decimal(repr(value))
    ):
        raise _ChangedError(
            f"{_short(digits)} has more digits than a double: round it, or {_REMEDY}"
        )
    return value


def _is_unicode(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"{names} repeats a name")
    return dict(pairs)


def _depth(text: str) -> int:
    """The depth of lists and objects in a JSON text."""
    steps = ((c in "[{") - (c in "]}") for c in _STRING.sub("", text))
    return max(accumulate(steps), default=0)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
