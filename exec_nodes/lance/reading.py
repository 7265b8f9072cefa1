"""Streams between Lance and Python: Lance keeps only the text of an error that Python raises in
one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa

from exec_nodes.arrow.ffi_alignment import aligned
from exec_nodes.base.threads import beyond_signals

# Lance runs signal handlers (Ctrl-C) while it reads a stream, so streams are read in a thread
# without handlers.


def rows_of(scan: Any) -> pa.Table:
    """The rows of a scanner, or of a file's reader."""
    return beyond_signals(scan.to_table)


def batches_of(scanner: Any) -> Iterator[pa.RecordBatch]:
    """The batches of a scanner."""
    reader = beyond_signals(scanner.to_reader)
    while (batch := beyond_signals(partial(next, reader, None))) is not None:
        yield batch


@contextmanager
def written(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatchReader]:
    """The batches that Lance writes in the block, in memory that it can read. Errors of making a
    batch pass unchanged."""
    raised: list[BaseException] = []

    def kept() -> Iterator[pa.RecordBatch]:
        try:
            yield from map(aligned, batches)
        except GeneratorExit:  # Lance has stopped
            raise
        except BaseException as error:
            raised.append(error)
            raise

    try:
        yield pa.RecordBatchReader.from_batches(schema, kept())
    except Exception:
        if raised:
            raise raised[0] from None
        raise
