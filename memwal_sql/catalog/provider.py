"""A folder of tables as a catalog: `mw.catalog`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

from datafusion import SessionContext
from datafusion.catalog import CatalogProvider, SchemaProvider
from datafusion.catalog import Table as SessionTable

from memwal_native import remember
from memwal_sql.catalog.folder import Folder, not_here
from memwal_sql.errors import InvalidCallError, MemWalError, UnsupportedError
from memwal_sql.read.snapshots import Consistency, check_consistency
from memwal_sql.session.session import session_of
from memwal_sql.state.enable import Uri
from memwal_sql.write.ingest.missing import ERROR, MissingInInsert, check_missing

# The session's own schema.
_OWN = "datafusion"


def catalog(
    ctx: SessionContext,
    uri: Uri,
    name: str,
    *,
    schema: str = "public",
    consistency: Consistency = "strong",
    missing: MissingInInsert = ERROR,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Show the tables of a folder to SQL in `ctx` as `name.schema.table`.

    A table `events` is the folder `events.lance` in it, as LanceDB and Lance's directory namespace
    have it, so that either side sees the other's. Tables of this package have their metadata tables
    (`events$regions`), searches and INSERT, and in `mw.sql` all of its statements; CREATE TABLE
    makes one in the folder, and DROP TABLE deletes it. Plain Lance tables are read. The next query
    sees tables that others have created or dropped.

    Args:
        name: of the catalog, as it stands in statements; what has it already is replaced.
        consistency, missing: as for `register`.

    Raises InvalidCallError for an empty name, for the name of the session's own catalog, and for a
    place other than a folder of a disk or bucket.
    """
    if not name or not schema:
        raise InvalidCallError("a catalog and its schema need names")
    if name == _OWN:
        raise InvalidCallError(f"{name!r} is the catalog of all other tables: give another name")
    check_consistency(consistency)
    check_missing(missing)
    session = session_of(ctx)
    folder = Folder(uri, storage_options, consistency, missing, session.slot)
    session.add_folder(name, schema, folder)
    ctx.register_catalog_provider(name, _Catalog(schema, _Schema(ctx, folder)))


class _Catalog(CatalogProvider):
    def __init__(self, name: str, schema: _Schema) -> None:
        self._name = name
        self._schema = schema

    def schema_names(self) -> set[str]:
        """The one that was named."""
        return {self._name}

    def schema(self, name: str) -> Any:
        """The folder."""
        return self._schema if name == self._name else None

    def register_schema(self, name: str, _: Any) -> None:
        """Raise UnsupportedError."""
        error = UnsupportedError(
            f"a catalog of a folder has the schema {self._name!r} alone, and can't get {name!r}: "
            "mw.catalog(ctx, place, name) shows another folder"
        )
        remember(error)
        raise error


class _Schema(SchemaProvider):
    def __init__(self, ctx: SessionContext, folder: Folder) -> None:
        self._session = ref(ctx)  # which holds its catalogs
        self._folder = folder

    @property
    def table_names(self) -> list[str]:  # type: ignore[override]  # DataFusion reads an attribute
        """The names of all tables, without metadata tables."""
        try:
            return self._folder.names()
        except MemWalError as error:
            remember(error)
            raise

    def table(self, name: str) -> SessionTable | None:
        """A table in its newest state."""
        ctx = self._session()
        try:
            if ctx is None:
                raise UnsupportedError(
                    "the SessionContext that catalog was called with is gone: keep it"
                )
            mounted = self._folder.mounted(name)
        except MemWalError as error:
            remember(error)
            raise
        return None if mounted is None else SessionTable(mounted, ctx)

    def table_exist(self, name: str) -> bool:
        """Whether there is one."""
        return self._folder.has(name)

    def register_table(self, name: str, _: Any) -> None:
        """Raise UnsupportedError."""
        error = not_here(f"making {name!r},")
        remember(error)
        raise error

    def deregister_table(self, name: str, cascade: bool = True) -> None:
        """Raise UnsupportedError."""
        error = not_here(f"dropping {name!r},")
        remember(error)
        raise error
