"""Where the keys of a Lance table are, kept in memory while that is cheap."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.base.columns import RowAddresses
from exec_nodes.keys.keys import one_array, plain
from exec_nodes.lance.fragments import all_addresses, every_row, fragment_identity
from exec_nodes.lance.scan import MAX_BATCH_ROWS

# A lookup by btree takes 0.25 ms more than one by address (1,000,000 rows, 2 cores), reading and
# sorting the keys 10 to 80 ns a row: after so many lookups the keys have paid for themselves.
ROWS_PER_LOOKUP = 10_000
BYTES_PER_ROW = 16
# A lookup searches each; merging them would take longer than reading a small one.
_MOST_RUNS = 8


@dataclass(frozen=True)
class KeyRun:
    """Keys in ascending order, equal ones by address, and where each is."""

    keys: npt.NDArray[Any]
    addresses: RowAddresses


@dataclass(frozen=True)
class KnownKeys:
    """The keys of some fragments, in runs that were read one after the other.

    Attributes:
        told: what tells the column and a fragment's values, by the fragment's number.
    """

    identities: Mapping[int, Hashable]
    runs: Sequence[KeyRun]

    def __len__(self) -> int:
        return sum(len(run.keys) for run in self.runs)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(int(run.keys.nbytes + run.addresses.nbytes) for run in self.runs)

    def covers(self, dataset: Any, column: str) -> bool:
        """Whether the fragments that a version has are these and new ones."""
        identities = _identities(dataset, column)
        return all(self.identities.get(number, own) == own for number, own in identities.items())

    def needs_rebuild(self, dataset: Any) -> bool:
        """Whether it is time to read all keys of a version anew."""
        rows = sum(fragment.physical_rows for fragment in dataset.get_fragments())
        return len(self.runs) > _MOST_RUNS or len(self) > 2 * rows


def read_keys(dataset: Any, column: str, known: KnownKeys | None = None) -> KnownKeys:
    """The keys of `column`, for whose type `is_integral` holds; what is `known` of another version
    is not read again, as far as it serves this one: after a merge, the rows that it wrote are
    read. Keys of deleted rows lead to no row."""
    identities = _identities(dataset, column)
    if known is None or not known.covers(dataset, column) or known.needs_rebuild(dataset):
        return KnownKeys(identities, [_read(dataset, column, None)])
    unread = [one for one in dataset.get_fragments() if one.fragment_id not in known.identities]
    runs = [*known.runs, _read(dataset, column, unread)] if unread else known.runs
    return KnownKeys({**known.identities, **identities}, runs)


class KeyRows:
    """Where integer keys are in one version of a table without stable row ids.

    Attributes:
        known: the keys, maybe of other versions too.
        unread: the fragments whose keys are not known.
    """

    def __init__(self, dataset: Any, known: KnownKeys) -> None:
        """`known` must serve `dataset`."""
        self.known = known
        fragments = dataset.get_fragments()
        self.unread = [one for one in fragments if one.fragment_id not in known.identities]

    def addresses(self, key: Any) -> Iterator[int]:
        """Where rows of a key are or were, the last one first; other versions may have them."""
        for run in reversed(self.known.runs):  # most rows of an old one may be gone
            keys = run.keys
            wanted = keys.dtype.type(key)
            at = int(keys.searchsorted(wanted, side="right")) - 1
            while at >= 0 and keys[at] == wanted:
                yield int(run.addresses[at])
                at -= 1


def is_integral(kind: pa.DataType) -> bool:
    """Whether `plain` turns a column of this type into integers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _identities(dataset: Any, column: str) -> dict[int, Hashable]:
    (field,) = (one.id() for one in dataset.lance_schema.fields() if one.name() == column)
    fragments = dataset.get_fragments()
    return {one.fragment_id: (field, fragment_identity(dataset.uri, one)) for one in fragments}


def _read(dataset: Any, column: str, fragments: Sequence[Any] | None) -> KeyRun:
    """The keys of these fragments, all by default; of deleted rows too, as a restored version may
    have them again."""
    read = dataset.get_fragments() if fragments is None else fragments
    table = every_row(dataset, [column], read, MAX_BATCH_ROWS).to_table()
    keys = one_array(plain(table[column])).to_numpy()
    addresses = all_addresses(read)
    if (keys[1:] > keys[:-1]).all():
        return KeyRun(keys, addresses)
    order = np.argsort(keys, kind="stable")
    return KeyRun(keys[order], addresses[order])
