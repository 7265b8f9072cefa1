"""Names of tables as SQL reads them."""

from __future__ import annotations

import re

from memwal_sql.errors import InvalidCallError

_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^".]+?))\s*(\.|$)')
_DEFAULTS = ("datafusion", "public")
_PARTS = 3

TableName = tuple[str, str, str]


def table_name(text: str) -> TableName:
    """Catalog, schema and table: `events`, `schema.events`, `"My events"`.

    What is not in double quotes is in lower case. Raises InvalidCallError for anything else.
    """
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None or len(parts) == _PARTS:
            raise InvalidCallError(f"{text!r} is no name of a table")
        quoted, plain, separator = match.groups()
        parts.append(plain.lower() if quoted is None else quoted.replace('""', '"'))
        position = match.end()
        if not separator:
            break
    catalog, schema, name = (*_DEFAULTS[: _PARTS - len(parts)], *parts)
    return catalog, schema, name
