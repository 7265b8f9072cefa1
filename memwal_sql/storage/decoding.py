"""Turns damage in a record into a CorruptFileError that names the file and the remedy.

Files of a table are input: a bit may have flipped, a disk lost a page, another program written its
own. All errors of decoding such a record are reported in one way, here.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from memwal_sql.errors import CorruptFileError, MemWalError

LARGEST = 2**62
"""No version, position, epoch or count of a table comes near: what is larger is damage, and what is
not can be added to within 64 bits."""
LAST_SECOND = 253_402_300_799
"""Of the year 9999, in seconds since 1970: a calendar ends there."""
_RESTORE = "restore it from a copy, and see table.check()"
_DIGITS = re.compile("[0-9]{1,20}")
_DAMAGE = (
    ValueError,  # UnicodeDecodeError and JSONDecodeError are
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    pa.ArrowException,
    DecodeError,
    struct.error,
)
_SHOWN = 200


@contextmanager
def decoding(path: str, what: str, remedy: str = _RESTORE) -> Iterator[None]:
    """Raise CorruptFileError, saying that `path` is not `what`, for whatever goes wrong inside.

    MemWalErrors pass unchanged. Put nothing but decoding inside: a bug of the program would be
    reported as damage.
    """
    try:
        yield
    except MemWalError as error:
        if isinstance(error, ValueError):  # an InvalidCallError: here the file is what is invalid
            raise damaged(path, what, error, remedy) from error
        raise
    except _DAMAGE as error:
        raise damaged(path, what, error, remedy) from error


def damaged(path: str, what: str, why: object, remedy: str = _RESTORE) -> CorruptFileError:
    """The error for a file that is not what it should be."""
    if isinstance(why, KeyError):
        why = f"{why} is missing"
    elif isinstance(why, RecursionError):
        why = "it is nested too deep"
    reason = str(why).strip() or type(why).__name__
    if len(reason) > _SHOWN:
        reason = f"{reason[:_SHOWN]}..."
    return CorruptFileError(f"{path} is not {what}: {reason}; {remedy}")


def json_object(data: bytes) -> dict[str, Any]:
    """The JSON object of a file. Raises what `decoding` takes."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError(f"it holds {type(value).__name__} instead of an object")
    return value


def whole_number(value: object, least: int = 0, most: int = LARGEST) -> int:
    """A stored number between `least` and `most`. Raises ValueError or TypeError for anything else,
    such as 1.0, true or "1"."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    if not least <= value <= most:
        raise ValueError(f"{value} is not between {least} and {most}")
    return value


def number_of(text: str) -> int | None:
    """The number up to `LARGEST` that a text of ASCII digits is; None for any other text.

    `str.isdecimal` and `int` take the digits of all scripts, and underscores.
    """
    number = int(text) if _DIGITS.fullmatch(text) else None
    return number if number is not None and number <= LARGEST else None
