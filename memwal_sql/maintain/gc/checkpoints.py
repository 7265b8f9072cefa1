"""Collecting checkpoints that expired or were dropped, with their records and tags."""

from __future__ import annotations

from collections.abc import Iterable

from memwal_sql.maintain.checkpoint.checkpoints import delete_tag
from memwal_sql.maintain.checkpoint.records import (
    Checkpoint,
    all_checkpoints,
    is_checkpoint_tag,
    records_of,
)
from memwal_sql.maintain.details import latest_dataset
from memwal_sql.maintain.gc.rules import Garbage, Kind
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.refs import tags_of
from memwal_sql.storage.paths import RECORD_FOLDER


def checkpoint_garbage(checkpoints: Iterable[Checkpoint], before: float) -> list[Garbage]:
    """The checkpoints that had ended by a time; `number` is that of the record."""
    garbage = []
    for checkpoint in checkpoints:
        if checkpoint.is_live(before) or (checkpoint.dropped and checkpoint.created > before):
            continue
        path = f"{RECORD_FOLDER}/checkpoints/{checkpoint.name}"
        reason = "dropped" if checkpoint.dropped else "expired"
        garbage.append(Garbage(Kind.CHECKPOINT, None, path, None, reason, number=checkpoint.number))
    return garbage


def remove_checkpoints(
    context: TableContext, checkpoints: Iterable[Checkpoint], garbage: Iterable[Garbage]
) -> None:
    """Delete the records in `garbage`, older records of other names, and tags without a record.

    A checkpoint is recorded before it is tagged, so a tag whose record is not there afterwards is
    one that nobody will come back to.
    """
    going = {item.path.rpartition("/")[2] for item in garbage if item.kind is Kind.CHECKPOINT}
    for checkpoint in checkpoints:
        if checkpoint.number == 1 and checkpoint.name not in going:
            continue
        records = records_of(context.store, checkpoint.name)
        last = checkpoint.number if checkpoint.name in going else checkpoint.number - 1
        records.delete(version for version in records.versions() if version <= last)
    tags = [
        tag for tag in tags_of(context.store, latest_dataset(context)) if is_checkpoint_tag(tag)
    ]
    if tags:
        kept = {
            checkpoint.tag
            for checkpoint in all_checkpoints(context.store)
            if not checkpoint.dropped
        }
        for tag in tags:
            if tag not in kept:
                delete_tag(context, tag)
