"""The outcome of a commit of the base table, which only Lance's errors tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lance.fragment import DeletionFile, FragmentMetadata

from exec_nodes.lance.errors import BASE_NAME, damaged, is_cut, is_not_found, lance_panics
from memwal_sql.errors import (
    ConflictError,
    DeadlineExceededError,
    MemWalError,
    OutcomeUnknownError,
    RepairError,
    RetryError,
)

_CONFLICT = re.compile(
    r"commit conflict|incompatible transaction|concurrent writers|stale sstable|version conflict",
    re.IGNORECASE,
)


def is_conflict(error: Exception) -> bool:
    """Whether Lance has committed nothing, for the sake of somebody else's commit: to be told from
    a store that refuses, whose errors hold names of files."""
    return _CONFLICT.search(str(error)) is not None


def lost_files(error: Exception, uri: str, what: str) -> MemWalError | None:
    """The error where Lance found that files of the base table are gone or cut, which no further
    try mends; None for all else."""
    if is_not_found(error):
        return RepairError(
            f"{what}: files of the base table {uri} are gone: restore them from a copy, or go back "
            "to a version that is whole. Where table.check() finds nothing, the version was "
            f"cleaned up meanwhile: run this again: {error}"
        )
    return damaged(BASE_NAME, uri, error) if is_cut(error) else None


@contextmanager
def base_commit(uri: str, what: str) -> Iterator[None]:
    """A context for one commit of the base table at `uri`; `what`, its purpose, begins the error's
    sentence.

    Raises ConflictError where somebody else's came first, OutcomeUnknownError where the store
    failed, which it may do after it has committed, RepairError where files of the table are gone or
    cut, and MemWalError where Lance failed.
    """
    try:
        with lance_panics(BASE_NAME, uri):
            yield
    except MemWalError:
        raise
    except (OSError, RuntimeError) as error:
        if is_conflict(error):
            raise ConflictError(f"{what}: the base table changed meanwhile: {error}") from error
        if (lost := lost_files(error, uri, what)) is not None:
            raise lost from error
        kind = OutcomeUnknownError if isinstance(error, OSError) else MemWalError
        raise kind(
            f"{what}: Lance failed, and the commit may be there or not; look, and try again: "
            f"{error}"
        ) from error


@contextmanager
def half_done(what: str, of: type[RetryError] = RetryError) -> Iterator[None]:
    """A context in which errors that may come between two commits say so; `what` names the remedy.
    A deadline that ends between them stays a deadline error."""
    try:
        yield
    except of as error:
        ended = isinstance(error, DeadlineExceededError)
        kind = DeadlineExceededError if ended else OutcomeUnknownError
        raise kind(f"{what}: {error}") from error


def emptied(fragment: FragmentMetadata) -> FragmentMetadata:
    """The fragment with every row deleted. Lance's merge of columns leaves it out, so nobody reads
    a deletion file, and none is written."""
    deleted = DeletionFile(
        read_version=0,
        id=0,
        file_type="array",
        num_deleted_rows=fragment.physical_rows,
        base_id=None,
    )
    return replace(fragment, deletion_file=deleted)
