"""The rows of an Arrow file or stream, whose compressed batches are looked at before they are read.

A compressed buffer says how large it becomes, and Arrow allocates what it says: a file of kilobytes
may ask for gigabytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from exec_nodes.arrow.row_stream import WholeRows
from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.wal.arrow_stream import decompressed_bytes

_MAGIC = b"ARROW1"
# The magic and what fills it up; a stream follows.
_HEAD_BYTES = 8


def read_arrow(file: BinaryIO) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns and the batches of a file, which is at its beginning.

    Raises InvalidCallError for a batch that is far larger than its bytes, and Arrow's errors, as
    the batches do.
    """
    is_file = file.read(len(_MAGIC)) == _MAGIC
    file.seek(_HEAD_BYTES if is_file else 0)
    _check_sizes(file)
    file.seek(0)
    if not is_file:
        stream = pa.ipc.open_stream(file)
        return stream.schema, iter(stream)
    reader = pa.ipc.open_file(file)
    return reader.schema, (reader.get_batch(n) for n in range(reader.num_record_batches))


def _check_sizes(file: BinaryIO) -> None:
    messages = pa.ipc.MessageReader.open_stream(file)
    for message in messages:
        if message.type not in ("record batch", "dictionary"):
            continue
        try:
            size = decompressed_bytes(message.metadata.to_pybytes(), message.body)
        except (struct.error, IndexError) as error:
            raise InvalidCallError(f"a batch is damaged: {error}") from None
        if size > WholeRows.nbytes and size > WholeRows.times * message.body.size:
            raise InvalidCallError(
                f"a batch of {message.body.size} bytes takes {size >> 20} MB once it is "
                "decompressed: write the file in smaller batches"
            )
