"""Arguments that several commands share, and the table that they name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from memwal_sql.create import open_table
from memwal_sql.errors import InvalidCallError
from memwal_sql.table import Table

# The key under which a command's context keeps further fields for the JSON document of an error.
ERROR_DETAILS = "memwal_sql.error_details"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
# A text with other characters may be a secret that was given without its key.
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_DURATION = re.compile(r"(\d+)([smhdw])")


class Output(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"


Uri = Annotated[
    str, typer.Argument(help="The table: a folder, or a URL such as s3://bucket/table.")
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        "-o",
        metavar="KEY=VALUE",
        help="As for Lance; may be given several times. Keep secrets in the environment.",
    ),
]
OutputOption = Annotated[
    Output,
    typer.Option(
        "--output",
        help="For people, or JSON for machines: bytes as hex digits, NaN and infinities as null.",
    ),
]
Version = Annotated[
    str | None,
    typer.Option("--version", help="Read this version of the base table, a number or a tag."),
]
Timestamp = Annotated[
    str | None,
    typer.Option("--timestamp", help="Read as of a time: ISO 8601 with a time zone."),
]
CheckpointName = Annotated[
    str | None, typer.Option("--checkpoint", help="Read what a checkpoint holds.")
]


def storage_options(texts: list[str] | None) -> dict[str, str] | None:
    """`KEY=VALUE` texts as a mapping; messages repeat nothing that may be a value."""
    pairs = [text.partition("=") for text in texts or ()]
    for number, (key, separator, _) in enumerate(pairs, start=1):
        if not separator or not _KEY.fullmatch(key):
            raise InvalidCallError(f"--storage-option number {number}: write it as KEY=VALUE")
    return {key: value for key, _, value in pairs} or None


def opened(
    uri: str,
    options: list[str] | None,
    *,
    version: str | None = None,
    timestamp: str | None = None,
    checkpoint: str | None = None,
) -> Table:
    """The table that a command is about."""
    return open_table(
        uri,
        version=version_of(version),
        storage_options=storage_options(options),
        timestamp=timestamp,
        checkpoint=checkpoint,
    )


def version_of(text: str | None) -> int | str | None:
    """The number of a version, or a tag."""
    return int(text) if text is not None and text.isdecimal() else text


def duration(text: str, option: str) -> timedelta:
    """`90s`, `15m`, `12h`, `7d`, `2w` or `1d12h`. Raises InvalidCallError naming the option."""
    parts = _DURATION.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        raise InvalidCallError(f"{option} {text!r}: write a time as 90s, 15m, 12h, 7d or 1d12h")
    try:
        return timedelta(seconds=sum(int(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError:
        raise InvalidCallError(f"{option} {text!r} is longer than 999999999d") from None


def pairs(option: str, texts: list[str] | None) -> Iterator[tuple[str, str]]:
    """`NAME=VALUE` texts. Raises InvalidCallError for other texts, and for a name that is given
    twice."""
    seen = set()
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name or name in seen:
            raise InvalidCallError(f"{option} {text!r}: write NAME=VALUE, and each name once")
        seen.add(name)
        yield name, value


def named_values(option: str, texts: list[str] | None) -> dict[str, Any]:
    """`NAME=VALUE` texts with values in JSON, or texts as they are. Raises as `pairs`."""
    return {name: _value(value) for name, value in pairs(option, texts)}


def _value(text: str) -> Any:
    """The value of a parameter: JSON, or the text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text
