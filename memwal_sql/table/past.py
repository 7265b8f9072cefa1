"""The state of a table at a version, a time or a checkpoint."""

import warnings
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from memwal_sql.errors import (
    ConflictError,
    InvalidCallError,
    TableReplacedError,
    UnrecordedVersionWarning,
)
from memwal_sql.history.moment import moment_of, state_at
from memwal_sql.history.tags import tagged_version
from memwal_sql.maintain.checkpoint.checkpoints import live_checkpoint
from memwal_sql.maintain.checkpoint.records import Checkpoint
from memwal_sql.read.pinned import CheckpointState, PinnedSnapshot
from memwal_sql.state.base_table import BaseTable, load_base
from memwal_sql.state.context import TableContext
from memwal_sql.state.enable import open_lance
from memwal_sql.table.handle import TableHandle

H = TypeVar("H", bound=TableHandle)


def past_handle(
    cls: type[H],
    context: TableContext,
    version: int | str | None,
    timestamp: datetime | str | None,
    checkpoint: str | None,
    dataset: Any = None,
) -> H:
    """See `Table.pinned`."""
    uri = context.uri
    arguments = {"version": version, "timestamp": timestamp, "checkpoint": checkpoint}
    moment = {name: value for name, value in arguments.items() if value is not None}
    live: Checkpoint | None = None
    past: Callable[[BaseTable], PinnedSnapshot] | None = None
    if isinstance(version, str):
        version, live = _named(context, version)
    elif timestamp is not None:
        recorded = moment_of(context.store, uri, timestamp)
        version, past = recorded.version, partial(state_at, context, moment=recorded)
    elif checkpoint is not None:
        live = live_checkpoint(context, checkpoint)
        version = live.version
    if live is not None:
        past = partial(_snapshot_of, live)
    if dataset is None:
        dataset = open_lance(uri, context.storage_options, version)
    try:
        base = load_base(context, dataset)
        fixed = None if past is None else CheckpointState(context, past(base))
        table = cls(context, base, pinned=True, fixed=fixed, moment=moment)
    except (ConflictError, TableReplacedError) as error:
        raise InvalidCallError(
            f"version {version} of {uri} has no regions of this table: it was made before the "
            f"table was enabled, or its rows were overwritten since; lance.dataset(uri, "
            f"version={version}) reads it"
        ) from error
    if table.reads_base_alone:
        warnings.warn(
            f"version {version} of {uri} has no record of its regions' states: it shows the "
            "base table alone, without rows that were not merged by then; merges and "
            "snapshot_regions() make records",
            UnrecordedVersionWarning,
            stacklevel=4,  # the caller of `open_table` or `as_of`
        )
    return table


def _snapshot_of(checkpoint: Checkpoint, base: BaseTable) -> PinnedSnapshot:
    return checkpoint.snapshot(base.info.region_specs)


def _named(context: TableContext, name: str) -> tuple[int, Checkpoint | None]:
    """The version of a tag; or of a checkpoint, with the checkpoint. Raises InvalidCallError that
    lists the existing names."""
    try:
        return tagged_version(context, name), None
    except InvalidCallError as no_tag:
        try:
            live = live_checkpoint(context, name)
            return live.version, live
        except InvalidCallError as no_checkpoint:
            raise InvalidCallError(f"{no_tag}; {no_checkpoint}") from None
