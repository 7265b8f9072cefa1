"""Child process of the soak: writes the same keys round after round until its input ends."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import until_told

KEYS = 40_000
WIDTH = 16
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "step": pa.int64(),
        "vec": pa.list_(pa.float32(), WIDTH),
        "body": pa.string(),
    }
)
_BATCH = 500
_DELETED = 20  # one key of so many is deleted, until its turn comes again
_MEMTABLE_ROWS = 4_000
_PAUSE_SECONDS = 0.2

Numbers = npt.NDArray[np.int64]


def rows_of(ids: Numbers, step: int) -> pa.Table:
    """One row an id, as the writer writes it at a step."""
    random = np.random.default_rng(step)
    words = random.integers(0, 100, (len(ids), 5))
    vectors = random.random(len(ids) * WIDTH, dtype=np.float32)
    columns = [
        pa.array(ids),
        pa.array(np.full(len(ids), step)),
        pa.FixedSizeListArray.from_arrays(pa.array(vectors), WIDTH).cast(SCHEMA.field("vec").type),
        pa.array([" ".join(f"word{word}" for word in row) for row in words]),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def main(uri: str) -> None:
    """Write `steps.npy` beside the table: the last step of each key, -1 for deleted ones."""
    table = mw.open_table(uri)
    stop = until_told()
    steps, step, start = np.zeros(KEYS, np.int64), 0, 0
    with table.writer(memtable_rows=_MEMTABLE_ROWS) as writer:
        while not stop.wait(_PAUSE_SECONDS):
            step += 1
            ids = np.arange(start, start + _BATCH) % KEYS
            writer.upsert(rows_of(ids, step))
            steps[ids] = step
            gone = ids[step % _DELETED :: _DELETED]
            writer.delete(pa.table({"id": gone}))
            steps[gone] = -1
            start = (start + _BATCH) % KEYS
    np.save(Path(uri).parent / "steps.npy", steps)


if __name__ == "__main__":
    main(*sys.argv[1:])
