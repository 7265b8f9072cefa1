"""Defaults of columns: constants that a new row gets in columns that it lacks.

A default is a text in the metadata of its field, as Arrow casts the value to a text and back.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from exec_nodes.arrow.arrays import type_text
from exec_nodes.arrow.texts import has_texts, read_texts
from memwal_sql.errors import CorruptFileError, InvalidCallError

DEFAULT_KEY = b"memwal_sql:default"
_SHOWN = 80


def default_of(field: pa.Field) -> pa.Scalar | None:
    """The default of a column; None without one.

    Raises InvalidCallError for a text that is not a value of the column's type.
    """
    text = (field.metadata or {}).get(DEFAULT_KEY)
    if text is None:
        return None
    try:
        if has_texts(field.type):
            return read_texts(pa.array([text.decode()]), field)[0]
        return pa.scalar(text.decode()).cast(field.type)
    except (pa.ArrowException, InvalidCallError, ValueError) as error:
        shown = repr(text[:_SHOWN])
        raise InvalidCallError(
            f"column {field.name!r}: the default {shown} is not {type_text(field.type)}: {error}"
        ) from error


def stored_defaults(schema: pa.Schema) -> Mapping[str, pa.Scalar]:
    """The defaults of a stored table by column. Raises CorruptFileError for one that is not a value
    of its column's type."""
    try:
        return defaults_of(schema)
    except InvalidCallError as error:
        raise CorruptFileError(
            f"the table's stored columns are damaged: {error}; table.set_default(name, value) "
            "replaces the default, table.set_default(name, None) removes it"
        ) from error


def defaults_of(schema: pa.Schema) -> Mapping[str, pa.Scalar]:
    """The defaults of given columns by name. Raises InvalidCallError as `default_of` does."""
    values = {field.name: default_of(field) for field in schema}
    return {name: value for name, value in values.items() if value is not None}


def with_default(field: pa.Field, value: pa.Scalar) -> pa.Field:
    """The column with a default of its type, or without one if `value` is null.

    Raises InvalidCallError for a value that has no text, or whose text is another value.
    """
    metadata = {k: v for k, v in (field.metadata or {}).items() if k != DEFAULT_KEY}
    if not value.is_valid:
        return field.with_metadata(metadata or None)
    try:
        text = value.cast(pa.string()).as_py()
        changed = field.with_metadata({**metadata, DEFAULT_KEY: text.encode()})
        if value.equals(default_of(changed)):
            return changed
    except (pa.ArrowException, InvalidCallError):
        pass
    raise InvalidCallError(
        f"column {field.name!r}: {value} of type {field.type} can't be a default, as no text is "
        "read as it: give the column in each row"
    )
