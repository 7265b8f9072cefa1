"""Small rows, and a watch on the files of a table while a call is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from memwal_sql.errors import InvalidCallError, MemWalError
from tests.model.folder_state import folder_state

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("small", pa.int8()),
        pa.field("text", pa.string()),
        pa.field("must", pa.float64(), False),
    ]
)


def make_rows(*ids: int, text: str = "x") -> pa.Table:
    count = len(ids)
    return pa.table(
        {"id": ids, "small": [1] * count, "text": [text] * count, "must": [0.5] * count},
        schema=SCHEMA,
    )


def texts_of(table: Any, **how: Any) -> dict[int, str]:
    rows = table.scan(**how).read_all()
    return dict(zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True))


@contextmanager
def refused(uri: str, *words: str, kind: type[MemWalError] = InvalidCallError) -> Iterator[None]:
    """The block raises `kind` with all these words, and changes no file of the table."""
    before = folder_state(uri)
    with pytest.raises(kind) as caught:
        yield
    message = str(caught.value)
    for word in words:
        assert word.lower() in message.lower(), f"{word!r} is not in: {message}"
    assert folder_state(uri) == before, "something was written"
