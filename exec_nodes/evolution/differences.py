"""What has become of columns, for messages."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

import pyarrow as pa

from exec_nodes.evolution.match import FIELD_ID_KEY

_MOST = 8


def differences(before: pa.Schema, now: pa.Schema) -> str:
    """The differences of two schemas, such as `'n' is int64, and was int32; 'price' double was
    added`. Fields are the same where their ids are, or their names where one of them has no id."""
    parts = list(_differences(before, now))
    more = f"; and {len(parts) - _MOST} more" if len(parts) > _MOST else ""
    return "; ".join(parts[:_MOST]) + more


def with_ids(schema: pa.Schema, ids: Mapping[str, int]) -> pa.Schema:
    """The schema, whose columns have their ids by name in their metadata, if all are known."""
    if not ids.keys() >= set(schema.names):
        return schema
    key = FIELD_ID_KEY
    return pa.schema([f.with_metadata({key: b"%d" % ids[f.name]}) for f in schema])


def _differences(before: pa.Schema, now: pa.Schema) -> Iterator[str]:
    by_id = all(FIELD_ID_KEY in (field.metadata or {}) for field in [*before, *now])
    then, fields = ({_key(field, by_id): field for field in each} for each in (before, now))
    for key, old in then.items():
        new = fields.get(key)
        if new is None:
            yield f"{old.name!r} was dropped"
            continue
        if new.name != old.name:
            yield f"{old.name!r} was renamed to {new.name!r}"
        if new.type != old.type:
            yield f"{new.name!r} is {new.type}, and was {old.type}"
        elif new.nullable != old.nullable:
            yield f"{new.name!r} may {'' if new.nullable else 'not '}be null"
    for key, new in fields.items():
        if key not in then:
            yield f"{new.name!r} {new.type} was added"
    if then.keys() == fields.keys() and list(then) != list(fields):
        yield f"the order is {now.names}"
    if then.keys() == fields.keys() and before.equals(now):
        yield "fields inside columns were dropped, and others of their names added"


def _key(field: pa.Field, by_id: bool) -> Hashable:
    name: str = field.name
    return field.metadata[FIELD_ID_KEY] if by_id else name
