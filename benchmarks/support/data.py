"""Generated rows, and checksums that tell whether two answers hold the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

KEY = {b"lance-schema:unenforced-primary-key": b"true"}
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("val", pa.float64()),
        pa.field("name", pa.string()),
    ]
)
NATIVE_SCHEMA = SCHEMA.set(0, SCHEMA.field(0).with_metadata(KEY))
NAME_BYTES = 20
WIDTH = 768
VECTORS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("vec", pa.list_(pa.float32(), WIDTH))]
)
_VECTOR_ROWS = 2_000

Ids = npt.NDArray[np.int64]


def rows(ids: Ids, seed: int, name_bytes: int = NAME_BYTES) -> pa.Table:
    """One row an id: a double in [0, 1) and a string of `name_bytes`, both drawn by `seed`."""
    random = np.random.default_rng(seed)
    values = random.random(len(ids))
    digits = pa.array(random.integers(0, 10**15, len(ids))).cast(pa.string())
    names = pc.utf8_lpad(digits, name_bytes, "n")
    return pa.table([pa.array(ids), pa.array(values), names], schema=SCHEMA)


def shuffled(count: int, seed: int = 1) -> Ids:
    """0 to count - 1 in a repeatable random order."""
    return np.random.default_rng(seed).permutation(count).astype(np.int64)


def vectors_of(size: int) -> int:
    """How many rows of `VECTORS` have about so many bytes."""
    return size // (4 * WIDTH + 8)


def vector_batches(size: int) -> Iterator[pa.RecordBatch]:
    """About so many bytes of rows of `VECTORS`, each with an id of its own."""
    random, total = np.random.default_rng(7), vectors_of(size)
    for start in range(0, total, _VECTOR_ROWS):
        ids = np.arange(start, min(start + _VECTOR_ROWS, total))
        values = pa.array(random.random(len(ids) * WIDTH, dtype=np.float32))
        vectors = pa.FixedSizeListArray.from_arrays(values, WIDTH)
        yield pa.RecordBatch.from_arrays([pa.array(ids), vectors], schema=VECTORS)


def merged(parts: Iterable[pa.Table]) -> pa.Table:
    """The newest row of each id, `parts` being ordered from old to new, ordered by id."""
    table = pa.concat_tables(parts)
    ids = table["id"].to_numpy()
    _, last = np.unique(ids[::-1], return_index=True)
    return table.take(pa.array(len(ids) - 1 - last))


def checksum(table: pa.Table) -> tuple[int, ...]:
    """Row count and order-independent sums over `id`, `val` and (where there is one) `name`.

    The sums are taken modulo 2**64, so those of batches can be added up. The product term ties
    each row's value to its id.
    """
    ids = table["id"].to_numpy()
    values = np.ascontiguousarray(table["val"].to_numpy()).view(np.int64)
    with np.errstate(over="ignore"):
        sums = [len(ids), int(ids.sum()), int((values * (2 * ids + 1)).sum())]
    if "name" in table.column_names:
        sums.append(sum(map(_text_sum, table["name"].chunks)))
    return tuple(number % 2**64 for number in sums)


def _text_sum(names: pa.StringArray) -> int:
    digits = pc.utf8_ltrim(names, "n").cast(pa.int64())
    return int(pc.sum(digits).as_py() or 0)


def batches(table: pa.Table, size: int) -> list[pa.RecordBatch]:
    """`table` in batches of `size` rows."""
    return list(table.combine_chunks().to_batches(max_chunksize=size))


def check_same(ours: pa.Table, theirs: pa.Table, what: str) -> None:
    """Raise unless both tables hold the same rows in any order."""
    mine, other = checksum(ours), checksum(theirs)
    if mine != other:
        raise WrongResultError(f"{what}: ours {mine}, baseline {other}")


class WrongResultError(AssertionError):
    """A benchmark's answer is not its baseline's: its time means nothing."""
