"""The table that a write goes to, found or made on the driver before any row moves."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from memwal_sql.bulk.publish import routing_spec
from memwal_sql.bulk.rows import DUPLICATES, RowForm
from memwal_sql.create import create_table, is_table
from memwal_sql.errors import InvalidCallError
from memwal_sql.spark.options import IF_EXISTS, OPERATIONS, Options
from memwal_sql.spark.tables import table_of
from memwal_sql.spark.types import arrow_schema
from memwal_sql.table import Table
from memwal_sql.write.ingest.missing import ERROR, KEEP, NULL
from planner.regions.text import spec_of

MISSING = (ERROR, KEEP, NULL)


def row_form(options: Options) -> RowForm:
    """How the options say that rows are to be read."""
    return RowForm(
        order_by=options.values.get("orderBy"),
        delete_column=options.values.get("deleteColumn"),
        deletes=options.choice("operation", OPERATIONS, "upsert") == "delete",
        missing=options.choice("missing", MISSING, ERROR),
        duplicates=options.choice("duplicates", DUPLICATES, ERROR),
        when=options.values.get("when"),
    )


def prepare(options: Options, schema: StructType) -> tuple[Table, bool]:
    """The table to write, and whether option `ifExists` says to leave it alone.

    A missing table is created, with the rows' columns, and gets more of them if option
    `mergeSchema` says so. Raises InvalidCallError where rows of `schema` don't fit, or an option
    does not.
    """
    form, rows = row_form(options), arrow_schema(schema)
    # As in every format of Spark: that the first rows have no nulls says nothing about later ones.
    columns = arrow_schema(schema.toNullable())
    exists = is_table(options.uri, options.storage_options)
    wish = options.choice("ifExists", IF_EXISTS, "append")
    if exists and wish == "error":
        raise InvalidCallError(f'{options.uri} is there already, and ifExists is "error"')
    if exists and wish == "ignore":
        return table_of(options), True
    table = table_of(options) if exists else _create(options, form, columns)
    _check_same(options, table)
    routing_spec(table.info)
    if options.flag("mergeSchema", False):
        _merge(table, form, columns)
    form.check(rows, table.info)
    return table, False


def _merge(table: Table, form: RowForm, columns: pa.Schema) -> None:
    """Add the columns that the rows have, and the table has not."""
    known = {form.delete_column, *table.schema.names}
    new = pa.schema([field for field in columns if field.name not in known])
    if not new.names or form.deletes:
        return
    try:
        table.add_columns(new)
    except InvalidCallError:
        table.refresh()
        if set(new.names).isdisjoint(table.schema.names):
            raise
        _merge(table, form, columns)  # others have added some of them meanwhile


def _create(options: Options, form: RowForm, rows: pa.Schema) -> Table:
    key = options.names("primaryKey")
    if key is None:
        raise InvalidCallError(
            f"{options.uri} is not a table yet; to create it name its key: "
            'option("primaryKey", "id"), and perhaps option("regions", "bucket(id, 8)")'
        )
    if form.deletes:
        raise InvalidCallError(f"{options.uri} is not a table yet: there is nothing to delete")
    columns = pa.schema([field for field in rows if field.name != form.delete_column])
    regions = options.values.get("regions")
    if regions is not None and spec_of(regions, 1).is_manual:
        raise InvalidCallError(
            f"regions={regions!r}: nothing says which region a row of Spark belongs to; give "
            'functions of key columns, such as "bucket(id, 8)", or leave regions out'
        )
    create_table(options.uri, columns, key, regions, storage_options=options.storage_options)
    return table_of(options)


def _check_same(options: Options, table: Table) -> None:
    """Options of creation may be repeated, as a job does not know which run is the first."""
    key = options.names("primaryKey")
    if key is not None and key != table.primary_key:
        raise InvalidCallError(
            f"{options.uri} has the primary key {list(table.primary_key)}, not {list(key)}: "
            "leave primaryKey out, or write to another table"
        )
    text = options.values.get("regions")
    if text is None:
        return
    spec = routing_spec(table.info)
    field_ids = spec_of(text, 1).field_ids
    if field_ids != spec.field_ids:
        raise InvalidCallError(
            f"{options.uri} has regions by {list(spec.field_ids)}, not by {list(field_ids)}: leave "
            "regions out, or write to another table"
        )
