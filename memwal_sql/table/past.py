"""The state of a table at a version, a time or a checkpoint."""

import warnings
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Self

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
from memwal_sql.read.pinned import PinnedSnapshot
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.enable import open_lance
from memwal_sql.storage.decoding import LARGEST
from memwal_sql.table.handle import TableHandle


def check_moment(
    version: int | str | None, timestamp: datetime | str | None, checkpoint: str | None
) -> None:
    """Raise InvalidCallError for an invalid version, and for more than one of the three."""
    if version is not None and (isinstance(version, bool) or not isinstance(version, int | str)):
        raise InvalidCallError(
            f"version={version!r} must be the number of a base table version, or a tag"
        )
    if isinstance(version, int) and not 1 <= version <= LARGEST:
        raise InvalidCallError(f"version={version}: versions are numbered from 1")
    arguments = {"version": version, "timestamp": timestamp, "checkpoint": checkpoint}
    if sum(value is not None for value in arguments.values()) > 1:
        raise InvalidCallError(f"give one of version, timestamp and checkpoint, not {arguments}")


class PastTable(TableHandle):
    """Handles on past states of the table."""

    def as_of(
        self,
        version: int | str | None = None,
        *,
        timestamp: datetime | str | None = None,
        checkpoint: str | None = None,
    ) -> Self:
        """A handle on a past state of the table. Give one of the arguments, which are those of
        `open_table`."""
        check_moment(version, timestamp, checkpoint)
        if version is None and timestamp is None and checkpoint is None:
            raise InvalidCallError("give a version, a timestamp or a checkpoint")
        return self.pinned(self._context, version, timestamp, checkpoint)

    @classmethod
    def pinned(
        cls,
        context: TableContext,
        version: int | str | None,
        timestamp: datetime | str | None,
        checkpoint: str | None,
        dataset: Any = None,
    ) -> Self:
        """A handle on a past state of the table at a context; `dataset` is the version, if it is
        open."""
        uri = context.uri
        opened_with = {"version": version, "timestamp": timestamp, "checkpoint": checkpoint}
        live: Checkpoint | None = None
        past: Callable[[BaseTable], PinnedSnapshot] | None = None
        if isinstance(version, str):
            version, live = _named(context, version)
        elif timestamp is not None:
            moment = moment_of(context.store, uri, timestamp)
            version, past = moment.version, partial(state_at, context, moment=moment)
        elif checkpoint is not None:
            live = live_checkpoint(context, checkpoint)
            version = live.version
        if live is not None:
            past = partial(_snapshot_of, live)
        if dataset is None:
            dataset = open_lance(uri, context.storage_options, version)
        try:
            table = cls(context, dataset, pinned=True, past=past)
            table._moment = {
                name: value for name, value in opened_with.items() if value is not None
            }
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
                stacklevel=3,  # the caller of `open_table` or `as_of`
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
