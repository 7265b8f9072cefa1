"""The table's schema: its primary key as Lance marks it, and the columns a user sees."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from lance.schema import LanceSchema

from exec_nodes.arrow.nested import check_levels, check_width, inner_fields, with_inner_fields
from exec_nodes.keys.keys import check_key_type
from memwal_sql.errors import InvalidCallError
from memwal_sql.state.defaults import DEFAULT_KEY, default_of

TOMBSTONE = "_tombstone"
_KEY = b"lance-schema:unenforced-primary-key"
_POSITION = b"lance-schema:unenforced-primary-key:position"
_BLOB = b"lance-encoding:blob"
_LANCE_PREFIXES = (b"lance-schema:", b"lance:")
# Begins the names of columns that Lance adds to WAL entries (lance 9150).
_OF_ENTRIES = "__wal_"
# Who looks for a similar name compares each letter of one with each of the other.
_MOST_OF_A_NAME = 1024
_WITHOUT_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_RESERVED = frozenset(
    {TOMBSTONE, "_gen", "_source", "_distance", "_score", "_relevance_score"}
    # Lance's own
    | {
        "_rowaddr",
        "_rowid",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
    }
)


def primary_key_of(schema: pa.Schema) -> tuple[str, ...]:
    """The unenforced primary key of a Lance schema, in key order; () when it has none.

    Composite keys carry 1-based positions; without positions the order is that of the columns.
    """
    keys = []
    for index, field in enumerate(schema):
        metadata = field.metadata or {}
        if metadata.get(_KEY, b"").lower() in (b"true", b"1", b"yes") or _POSITION in metadata:
            position = int(metadata.get(_POSITION, b"0"))
            keys.append((position, index, field.name))
    return tuple(name for _, _, name in sorted(keys))


def key_metadata(position: int) -> dict[str, str]:
    """The field metadata that marks the `position`-th (from 1) column of a primary key."""
    return {_KEY.decode(): "true", _POSITION.decode(): str(position)}


def with_primary_key(schema: pa.Schema, primary_key: Sequence[str]) -> pa.Schema:
    """`schema` with the key columns marked as Lance does it and not nullable."""
    for position, name in enumerate(primary_key, start=1):
        index = schema.get_field_index(name)
        field = schema.field(index)
        metadata = {**(field.metadata or {}), **key_metadata(position)}
        schema = schema.set(index, field.with_nullable(False).with_metadata(metadata))
    return schema


def logical_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that users and DataFusion see: without Lance's own metadata."""
    return pa.schema([_logical_field(field) for field in schema])


def _logical_field(field: pa.Field) -> pa.Field:
    metadata = {
        key: value
        for key, value in (field.metadata or {}).items()
        if not key.startswith(_LANCE_PREFIXES)
    }
    return field.with_metadata(metadata or None)


def stored_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a table stores a value computed by DataFusion."""
    fields = [f.with_type(stored_type(f.type)) for f in inner_fields(kind)]
    return with_inner_fields(kind, fields) if fields else _WITHOUT_VIEWS.get(kind, kind)


def check_schema(schema: pa.Schema, primary_key: Sequence[str]) -> None:
    """Refuse a schema or a primary key that a MemWAL table can't have.

    Raises InvalidCallError, naming the column and the remedy.
    """
    names = schema.names
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidCallError(f"column names must be unique; these are not: {twice}")
    odd = [name for name in names if not name or "`" in name or "." in name]
    if odd:
        raise InvalidCallError(
            f"rename the columns {odd}: Lance can't filter by an empty name, or one with a dot or "
            "a backtick"
        )
    check_levels(schema)
    check_width(schema)
    cut = [name for field in schema for name in _names_in(field) if "\0" in name]
    if cut:
        raise InvalidCallError(f"rename {cut}: Lance cuts names off at a NUL")
    long = [name for field in schema for name in _names_in(field) if len(name) > _MOST_OF_A_NAME]
    if long:
        raise InvalidCallError(
            f"a column name of {len(long[0]):,} characters is too long: {_MOST_OF_A_NAME:,} are "
            f"the most; shorten {long[0][:20]}..."
        )
    quoted = [name for name in primary_key if '"' in name]
    if quoted:
        raise InvalidCallError(f"rename the key columns {quoted}: Lance can't merge by them")
    for field in schema:
        reason = _unstorable(field.type) or _unsupported(field)
        if reason:
            raise InvalidCallError(
                f"column {field.name!r} of type {field.type} can't be stored: {reason}"
            )
        default_of(field)
        if field.name in primary_key and DEFAULT_KEY in (field.metadata or {}):
            raise InvalidCallError(
                f"column {field.name!r} of the primary key can't have a default: every row must "
                "come with its key"
            )
    reserved = sorted(name for name in names if name in _RESERVED or name.startswith(_OF_ENTRIES))
    if reserved:
        raise InvalidCallError(f"rename the columns {reserved}: these names are reserved")
    if not primary_key:
        raise InvalidCallError(
            'a MemWAL table needs a primary key: pass primary_key="id" or a list of columns'
        )
    if len(set(primary_key)) != len(primary_key):
        raise InvalidCallError(f"the primary key {list(primary_key)} names a column twice")
    for name in primary_key:
        if name not in names:
            raise InvalidCallError(f"primary key column {name!r} is not in the schema: {names}")
        check_key_type(schema.field(name))


def _names_in(field: pa.Field) -> list[str]:
    """The name of a field, and of those inside it."""
    inner = [field.type.field(i) for i in range(field.type.num_fields)]
    return [field.name, *(name for child in inner for name in _names_in(child))]


def _unstorable(kind: pa.DataType) -> str | None:
    """Types that Lance takes and then can't write or read back."""
    if not pa.types.is_nested(kind):
        return None
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if not inner:
        return "a struct needs a field"
    if pa.types.is_fixed_size_list(kind) and _varies(inner[0]):
        return "lists of a fixed size are for numbers; use a list of any length"
    return next((reason for reason in map(_unstorable, inner) if reason), None)


def _unsupported(field: pa.Field) -> str | None:
    """Types that Arrow or Lance can't hold, or can't return from a scan."""
    is_blob = str(getattr(field.type, "extension_name", "")).startswith("lance.blob")
    if is_blob or _BLOB in (field.metadata or {}):
        return "scans of Lance don't give the bytes of blobs; use large_binary without that mark"
    try:
        pa.schema([field]).empty_table()  # Arrow can't make one of extension types inside others
        LanceSchema.from_pyarrow(pa.schema([field]))
    except (ValueError, OSError, pa.ArrowException) as error:
        reason = str(error).rpartition(", /")[0] or str(error)
        return f"choose another type, as there is no support for this one: {reason}"
    return None


def _varies(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return _varies(kind.field(0).type)
    return pa.types.is_nested(kind) or not _has_width(kind)


def _has_width(kind: pa.DataType) -> bool:
    try:
        return bool(kind.bit_width)
    except ValueError:
        return False
