"""The tables of a folder, as a catalog of the jar asks for them. The other side is `Requests.java`.

Each request names the folder (`root`, `storage`), and all but the first a table. What Spark has
exceptions of its own for is part of the answer; all else is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from memwal_sql.catalog.place import Kind, Place
from memwal_sql.create import create_table, is_table
from memwal_sql.drop import drop_table
from memwal_sql.errors import ConflictError, InvalidCallError, ReopenError, UnsupportedError
from memwal_sql.registration import METADATA_TABLES
from memwal_sql.spark.driver.alterations import steps_of
from memwal_sql.spark.driver.conditions import sql_of
from memwal_sql.spark.driver.definition import Definition
from memwal_sql.spark.driver.description import described, incarnation_of
from memwal_sql.spark.metadata_reader import metadata_schema
from memwal_sql.spark.options import Options
from memwal_sql.spark.tables import table_of
from memwal_sql.storage.objects.open import refuse_linked_root
from memwal_sql.storage.region.versions import region_ids
from memwal_sql.table import Table

Request = Mapping[str, Any]
Reply = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_FOUND = {"found": False}


def list_tables(request: Request) -> Reply:
    """The names of all tables, without metadata tables."""
    return {"names": place_of(request).names()}


def load_table(request: Request) -> Reply:
    """A table as it is, or as it was at `version` (a number or name) or `micros` (since 1970); or a
    metadata table, by a name such as `events$history`."""
    place, name = place_of(request), request["name"]
    of, _, about = name.rpartition("$")
    values: dict[str, str] = {}
    if "version" in request:
        values["version"] = request["version"]
    if "micros" in request:
        values["timestamp"] = _iso(request["micros"])
    if about in METADATA_TABLES:
        if not _is_ours(place, of):
            return _NOT_FOUND
        if values:
            raise InvalidCallError(f"{name} describes {of} as it is now: it has no AS OF")
        options = table_options(place, of, {"metadata": about})
        columns = metadata_schema(options, about).json()
        return {"found": True, "metadata": about, "path": options.uri, "columns": columns}
    if not _is_ours(place, name):
        return _NOT_FOUND
    options = table_options(place, name, values)
    return {**described(name, table_of(options)), "moment": values}


def make_table(request: Request) -> Reply:
    """Make a table. In `mode` `replace` or `createOrReplace` a table that is there is used if it
    has these columns, key and regions: with `empty` its rows are deleted, else the caller replaces
    them. In mode `create` a table that is there is not touched."""
    place, name, mode = place_of(request), request["name"], request["mode"]
    uri = place.location(name)
    if not is_table(uri, place.storage_options):
        if mode == "replace":
            return _NOT_FOUND
        definition = Definition.of(request)
        create_table(
            uri,
            definition.schema,
            definition.primary_key,
            definition.regions,
            place.storage_options,
        ).close()
        return {**described(name, _table(place, name)), "replaces": False}
    if not _is_ours(place, name) or mode == "create":
        return {"found": True, "exists": True}
    table = _table(place, name)
    Definition.of(request, table).check_same(table, empty=request["empty"])
    if request["empty"]:
        table.replace_rows(table.schema.empty_table())
    return {**described(name, table), "replaces": True}


def alter_table(request: Request) -> Reply:
    """Change columns, after all changes were checked."""
    place, name = place_of(request), request["name"]
    if not _is_ours(place, name):
        return _NOT_FOUND
    table = _table(place, name)
    for step in steps_of(table, request["changes"]):
        step()
    return described(name, table)


def truncate_table(request: Request) -> Reply:
    """Delete all rows, in one step."""
    table = _table(place_of(request), request["name"])
    table.replace_rows(table.schema.empty_table())
    return {}


def can_delete(request: Request) -> Reply:
    """Whether `delete_rows` takes the conditions."""
    return {"can": _condition(request, _table(place_of(request), request["name"])) is not None}


def delete_rows(request: Request) -> Reply:
    """Delete the rows that meet all conditions, as `TableWriter.delete_where` does."""
    table = _table(place_of(request), request["name"])
    condition = _condition(request, table)
    if condition is None:
        raise ReopenError(f"the columns of {table.uri} have changed: run the statement again")
    with table.writer() as writer:
        writer.delete_where(condition)
    return {}


def _condition(request: Request, table: Table) -> str | None:
    """The conditions as SQL; None if one has no form that means the same to DataFusion."""
    texts = sql_of(request["conditions"], table.schema)
    return " AND ".join(texts) if len(texts) == len(request["conditions"]) else None


def remove_table(request: Request) -> Reply:
    """Delete a table with its files."""
    place, name = place_of(request), request["name"]
    if not _is_ours(place, name):
        return _NOT_FOUND
    uri = place.location(name)
    refuse_linked_root(uri)
    drop_table(uri, place.storage_options)
    return {"found": True}


def abandon_table(request: Request) -> Reply:
    """Delete a table that the caller has made, of an `incarnation`. Raises ConflictError where
    others have written to it, or have made another one there."""
    place, name = place_of(request), request["name"]
    if not _is_ours(place, name):
        return _NOT_FOUND
    table = _table(place, name)
    if incarnation_of(table) != request["incarnation"]:
        raise ConflictError(f"{table.uri} stays: others have made it again meanwhile")
    if region_ids(table.context.store):
        raise ConflictError(
            f"{table.uri} stays, although the statement that made it has failed: it has been "
            "written to meanwhile. DROP TABLE deletes it with those rows"
        )
    drop_table(table.uri, place.storage_options)
    return {"found": True}


def _iso(micros: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:
        raise InvalidCallError("AS OF takes a time of the years 1 to 9999") from None


def place_of(request: Request) -> Place:
    """The folder that a request names."""
    return Place(request["root"], request["storage"] or None)


def _is_ours(place: Place, name: str) -> bool:
    """Whether there is a table. Raises UnsupportedError for a plain one of Lance."""
    kind = place.kind(name)
    if kind is Kind.PLAIN_LANCE:
        raise UnsupportedError(
            f"{place.location(name)} is a plain Lance table, which Spark can't read here: "
            "memwal_sql.enable(uri, primary_key=...) makes it one of this package"
        )
    return kind is Kind.TABLE


def _table(place: Place, name: str) -> Table:
    return table_of(table_options(place, name, {}))


def table_options(place: Place, name: str, values: Mapping[str, str]) -> Options:
    """The options of a use of a table of a folder."""
    storage = tuple(sorted((place.storage_options or {}).items()))
    return Options(place.location(name), values, storage)


CATALOG = {
    "list_tables": list_tables,
    "load_table": load_table,
    "create_table": make_table,
    "alter_table": alter_table,
    "truncate_table": truncate_table,
    "can_delete": can_delete,
    "delete_rows": delete_rows,
    "drop_table": remove_table,
    "abandon_table": abandon_table,
}
