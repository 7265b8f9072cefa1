"""Tables under their names in a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa
from datafusion import SessionContext

from exec_nodes.evolution.known import NO_IDS, has_known
from memwal_native import MountedTable
from memwal_native.syntax import SqlParser
from memwal_sql.arguments import unquoted
from memwal_sql.session.provider import SqlTable
from memwal_sql.write.ingest.missing import ERROR

_DEFAULTS = ("datafusion", "public")
# The name of a table: catalog, schema and table.
NAME_PARTS = 3

TableName = tuple[str, str, str]


class Registered(NamedTuple):
    """A table registered under a name.

    Attributes:
        columns: the columns that the session sees; the table may have others by now.
        mounted: the table in the session; None for a table of a folder, whose current columns the
            session sees.
        field_ids: the ids of `columns`.
    """

    name: str
    table: SqlTable
    columns: pa.Schema
    consistency: str
    mounted: MountedTable | None
    missing: str = ERROR
    approximate: bool = False
    field_ids: Mapping[str, int] = NO_IDS

    @property
    def has_columns(self) -> bool:
        """Whether the table still has the columns that the session sees."""
        table = self.table
        return has_known(table.schema, self.columns, table.field_ids, self.field_ids)

    @property
    def seen(self) -> pa.Schema:
        """The columns that a search sees: those of the session, if the table still has them."""
        return self.columns if self.has_columns else self.table.schema

    def is_in(self, session: SessionContext) -> bool:
        """Whether the session has this table, and no other, under its name."""
        is_there = self.mounted is None or self.mounted.is_mounted()
        return is_there and session.table_exist(self.name)


class TableFolder(Protocol):
    """A folder of tables that a session has as a schema of a catalog."""

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """The storage options of its tables."""

    def location(self, name: str) -> str:
        """The place of a table."""

    def registered(self, name: str) -> Registered | None:
        """The current MemWAL table of a name; None if there is none."""

    def mounted(self, name: str) -> MountedTable | None:
        """The table that the session has under a name; None if there is none."""

    def forget(self, name: str) -> None:
        """Note that a table is about to be deleted."""


def table_name(text: str) -> TableName:
    """Catalog, schema and table of a name that `register` takes."""
    return whole_name(name_parts(text))


def name_parts(text: str) -> tuple[str, ...]:
    """The parts of such a name, as DataFusion's `register_table` reads it: `events`,
    `schema.events`, `"My events"`. Any other text, such as `My events` or `2023-Data`, is one
    part."""
    try:
        tokens = SqlParser.tokens(text)
    except ValueError:  # an unterminated quote
        return (text,)
    names, dots = tokens[::2], tokens[1::2]
    if (
        len(names) != len(dots) + 1
        or len(names) > NAME_PARTS
        or any(kind not in ("word", "quoted") for kind, *_ in names)
        or any(value != "." for _, value, *_ in dots)
    ):
        return (text,)
    return tuple(part if kind == "quoted" else unquoted(part) for kind, part, *_ in names)


def whole_name(parts: Sequence[str]) -> TableName:
    """Catalog, schema and table for up to three given parts."""
    catalog, schema, name = (*_DEFAULTS[: NAME_PARTS - len(parts)], *parts)
    return catalog, schema, name
