"""CREATE EXTERNAL TABLE ... STORED AS MEMWAL in a session of DataFusion's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import ref

import datafusion
from datafusion import SessionContext
from datafusion.catalog import Table as SessionTable
from datafusion.expr import CreateExternalTable

from memwal_native import remember
from memwal_sql.arguments import quoted
from memwal_sql.create import open_table
from memwal_sql.errors import InvalidCallError, MemWalError, UnsupportedError
from memwal_sql.session.front.queries.tokens import statement_of
from memwal_sql.session.register import mounted
from memwal_sql.session.table_functions import SearchFunctions, search_functions
from memwal_sql.storage.objects.options import check_statement_options
from memwal_sql.write.ingest.missing import ERROR

FORMAT = "MEMWAL"
_STORAGE = "storage."
# DataFusion puts the first before an option's name without a dot; the second may be written.
_PREFIXES = ("format.", "memwal.")
_OPENING = ("version", "timestamp", "checkpoint")
_REGISTERING = ("consistency", "missing")


def register_factory(ctx: SessionContext, *, any_storage_option: bool = False) -> None:
    """Let a session open tables by its own statement, in `ctx.sql` as in `mw.sql`:

        CREATE EXTERNAL TABLE weather STORED AS MEMWAL LOCATION 's3://bucket/weather'
        OPTIONS ('consistency' 'manifest', 'storage.region' 'eu-west-1')

    This is `register`, with its tables about the table and its searches. Options are `consistency`
    and `missing`, as `register` takes them, `version`, `timestamp` or `checkpoint`, as `open_table`
    takes them, and `storage.NAME` for a storage option; names are in lower case.

    The table must be there. DataFusion shows a factory no types of columns, so `ctx.sql` refuses a
    statement with columns: `mw.sql` and `create_table` make tables.

    Args:
        any_storage_option: whether statements of this session, those of `mw.sql` too, may set any
            storage option. By default they can't name endpoints, proxies, commit logs and the like:
            requests signed with the credentials of the environment would go to whatever server the
            text names.
    """
    functions = search_functions(ctx)  # before the session is busy with a statement
    functions.any_storage_option = bool(any_storage_option)
    ctx.register_table_factory(FORMAT, _Factory(ctx, functions))


class _Factory(datafusion.TableProviderFactory):
    def __init__(self, ctx: SessionContext, functions: SearchFunctions) -> None:
        self._session = ref(ctx)  # which holds its factories
        self._functions = functions

    def create(self, cmd: CreateExternalTable) -> SessionTable:
        """The table that a statement names, as DataFusion registers it next."""
        try:
            return self._create(cmd)
        except MemWalError as error:
            remember(error)
            raise

    def _create(self, cmd: CreateExternalTable) -> SessionTable:
        ctx = self._session()
        if ctx is None:
            raise UnsupportedError(
                "the SessionContext that register_factory was called with is gone: keep it"
            )
        if cmd.schema().field_names() or cmd.table_partition_cols():
            raise UnsupportedError(
                "ctx.sql opens tables that are there, whose columns are not given, and makes none: "
                "mw.sql(ctx, ...) makes them by this statement, and mw.create_table does"
            )
        if cmd.order_exprs() or cmd.unbounded():
            raise UnsupportedError("a MemWAL table has no WITH ORDER, and is not UNBOUNDED")
        locations = cmd.locations()
        if len(locations) != 1:
            raise InvalidCallError(f"LOCATION must be one place, not {locations}")
        name = _name(cmd.definition())
        opening, registering = options_of(cmd.options(), self._functions)
        table = open_table(locations[0], **opening)
        return SessionTable(mounted(ctx, name, table, **registering), ctx)


def options_of(
    given: Mapping[str, str], functions: SearchFunctions
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What options of a statement mean to `open_table`, and to `register`.

    Raises InvalidCallError for those that neither has, and for storage options that statements of
    the session, whose `functions` these are, can't set.
    """
    opening: dict[str, Any] = {}
    registering = {"consistency": "strong", "missing": ERROR}
    storage: dict[str, str] = {}
    for key, value in given.items():
        name = key
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        if name.startswith(_STORAGE):
            storage[name.removeprefix(_STORAGE)] = value
        elif name in registering:
            registering[name] = value
        elif name == "version":
            opening[name] = _version(value)
        elif name in _OPENING:
            opening[name] = value
        else:
            known = [*_REGISTERING, *_OPENING, f"{_STORAGE}NAME"]
            raise InvalidCallError(f"{name!r} is not an option of a table; there are {known}")
    if not functions.any_storage_option:
        check_statement_options(storage)
    if storage:
        opening["storage_options"] = storage
    return opening, registering


def _version(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise InvalidCallError(f"the option version={value!r} must be a number") from None


def _name(definition: str) -> str:
    """The name that a statement gives its table, as SQL writes it whatever is in it."""
    statement = statement_of(definition)
    place = statement.expect(statement.find("EXTERNAL TABLE"), "EXTERNAL TABLE")
    if statement.has(place, "IF NOT EXISTS"):
        place += 3
    return ".".join(map(quoted, statement.table(place)[0]))
