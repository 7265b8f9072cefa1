"""The version of the format that this package knows, and those that a table needs.

Every record says which version it has. The record `table` also says the least version that readers
and writers of the table must know, so that a format that only writers must know, or that nobody has
written yet, shuts nobody out. A newer package that raises them puts the next record, commits a
version of the base table and claims every region. Readers look at the record when they meet a new
base version; writers once a claim's epoch is committed, and before a flush or a job commits
anything. So a package that is too old, and has the table open, is either fenced or refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memwal_sql.errors import UnknownFormatError
from memwal_sql.storage.decoding import whole_number
from memwal_sql.version import __version__

FORMAT_VERSION = 2
"""The version that this package reads and writes. Version 1 knew no transactions, and was never
released."""

_PACKAGE = re.compile(r"[0-9]+(\.[0-9A-Za-z]+){1,5}")


@dataclass(frozen=True, slots=True)
class Needs:
    """The least version that readers and writers of a table must know, and the version of
    memwal_sql that said so, where it told its own."""

    reader: int = FORMAT_VERSION
    writer: int = FORMAT_VERSION
    package: str | None = None


def stamp() -> dict[str, Any]:
    """The version fields of a record."""
    return {"format_version": FORMAT_VERSION, "package": __version__}


def stamp_of_table() -> dict[str, Any]:
    """The version fields of the record `table`."""
    return {**stamp(), "reader_version": FORMAT_VERSION, "writer_version": FORMAT_VERSION}


def check_record_version(path: str, content: Mapping[str, Any]) -> None:
    """Raise UnknownFormatError for a record of a version that is not known, naming what to install.

    To be called within `decoding`.
    """
    version = whole_number(content["format_version"])
    if version == FORMAT_VERSION:
        return
    package = _package(content)
    knows = f"memwal_sql {__version__} knows {FORMAT_VERSION}"
    if version > FORMAT_VERSION:
        raise UnknownFormatError(
            f"{path} has format version {version}, and {knows}: install {_newer(package)}"
        )
    raise UnknownFormatError(
        f"{path} has format version {version}, which is from before the one that is known "
        f"({knows}): use {f'memwal_sql {package}' if package else 'the version'} that wrote it"
    )


def needs_of(content: Mapping[str, Any]) -> Needs:
    """The versions that a record `table` asks for. Within `decoding`."""
    reader = whole_number(content["reader_version"], FORMAT_VERSION)
    writer = whole_number(content["writer_version"], FORMAT_VERSION)
    return Needs(reader, writer, _package(content))


def check_needs(uri: str, needs: Needs, *, writes: bool) -> None:
    """Raise UnknownFormatError unless this package may read, or write, what is at `uri`."""
    if needs.reader > FORMAT_VERSION:
        raise UnknownFormatError(
            f"{uri} is to be read by format version {needs.reader} or newer, and memwal_sql "
            f"{__version__} knows {FORMAT_VERSION}: install {_newer(needs.package)}"
        )
    if writes and needs.writer > FORMAT_VERSION:
        raise UnknownFormatError(
            f"{uri} is to be written by format version {needs.writer} or newer, and memwal_sql "
            f"{__version__} knows {FORMAT_VERSION}: it may read the table; to write it, install "
            f"{_newer(needs.package)}"
        )


def _newer(package: str | None) -> str:
    return f"memwal_sql {package} or newer" if package else "a newer memwal_sql"


def _package(content: Mapping[str, Any]) -> str | None:
    """The version that wrote a record; a record is input, so nothing else is repeated."""
    package = content.get("package")
    return package if isinstance(package, str) and _PACKAGE.fullmatch(package) else None
