"""Taking what Lance reads.

Lance runs signal handlers while it reads a stream, and of what they raise, as Ctrl-C does, only the
text is in its error. So nothing is read where handlers run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from exec_nodes.base.threads import beyond_signals


def rows_of(scan: Any) -> pa.Table:
    """The rows of a scanner, or of what a file's reader gives."""
    return beyond_signals(scan.to_table)


def batches_of(scanner: Any) -> Iterator[pa.RecordBatch]:
    """The batches of a scanner."""
    reader = beyond_signals(scanner.to_reader)
    while (batch := beyond_signals(partial(next, reader, None))) is not None:
        yield batch
