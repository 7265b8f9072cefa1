"""Postings from the files of Lance's own INVERTED index; nothing else knows their format.

It reads formats 2 and 3 with blocks of 128, the default of Lance 14, for which Lance ranks by exact
lengths. Nothing else can be read: `open_index` returns None, and the caller tokenizes the column. A
segment of an index is a folder `_indices/{uuid}` with `metadata.lance` (parameters, partitions) and
for each partition

* `part_{i}_tokens.lance`: a finite state transducer from tokens to their numbers;
* `part_{i}_docs.lance`: row id and number of tokens of every document that has one;
* `part_{i}_invert.lance`: by token number the posting list in packed blocks, and its length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from lance.file import LanceFileReader

from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.errors import RepairError, UnsupportedError
from exec_nodes.base.lazy import lazy_property
from exec_nodes.lance.reading import rows_of
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.protocol import Lengths, shortest
from exec_nodes.resident.store import Key, ResidentStore
from memwal_native import Postings, TokenMap

_FORMAT = {
    b"format_version": (b"2", b"3"),
    b"posting_block_size": (b"128",),
    b"posting_tail_codec": (b"varint_delta_v1",),
    b"token_set_format": (b"fst",),
}
_LISTS = ("_posting", "_length")
_TEXT_INDEX = "/lance.table.InvertedIndexDetails"
# The URI of its table and its uuid: the owners of its resident artefacts.
Segment = tuple[str, str]


@dataclass(frozen=True, slots=True)
class IndexSegment:
    """One segment of an index: the fragments it covers, and its partitions."""

    analyzer: Analyzer
    fragments: frozenset[int]
    partitions: tuple[LancePartition, ...]


class LancePartition:
    """One partition of a segment: documents are numbered in the order of the index."""

    def __init__(
        self, segment: Segment, number: int, options: dict[str, str] | None, store: ResidentStore
    ) -> None:
        self._path = f"{_folder(segment)}/part_{number}"
        self._owners, self._number = segment, number
        self._options = options
        self._store = store
        self._reading = Lock()  # Lance refuses calls of a reader while it reads
        self._check("invert", _LISTS)
        documents = self._read("docs", ["_rowid", "_num_tokens"])
        self.row_ids: RowAddresses = documents["_rowid"].to_numpy()
        rows = np.sort(self.row_ids)
        if (rows[1:] == rows[:-1]).any():
            raise ValueError("the elements of a list are documents of their own")
        self.lengths: Lengths = documents["_num_tokens"].to_numpy().astype(np.int32)
        self.shortest = shortest(self.lengths)
        tokens = self._read("tokens", ["_token_fst_bytes"])
        self._tokens = TokenMap(tokens["_token_fst_bytes"][0].as_py())

    @property
    def nbytes(self) -> int:
        """Bytes held, without posting lists."""
        return int(self.row_ids.nbytes + self.lengths.nbytes) + self._tokens.nbytes

    def postings(self, token: str) -> Postings | None:
        """The token's posting list; None if no document holds it.

        Raises RepairError if the file does not hold what its format promises.
        """
        number = self._tokens.get(token)
        if number is None:
            return None
        return self._store.compute(
            Key("postings", self._owners, (self._number, token)),
            lambda: self._postings(number, token),
            lambda postings: postings.nbytes,
        )

    def tokens(self) -> list[str]:
        """All tokens, ordered by their bytes."""
        return [token for token, _ in self._tokens.items()]

    def near(self, token: str, distance: int, prefix_length: int) -> list[str]:
        return self._tokens.near(token, distance, prefix_length)

    @lazy_property
    def _lists(self) -> Any:
        return LanceFileReader(self._file("invert"), self._options, list(_LISTS))

    def _postings(self, number: int, token: str) -> Postings:
        with self._reading:
            row = rows_of(self._lists.read_range(number, 1))
        blocks = row["_posting"].combine_chunks().values
        _, offsets, data = blocks.buffers()
        bounds = np.frombuffer(offsets, np.int64)[blocks.offset : blocks.offset + len(blocks) + 1]
        length = row["_length"][0].as_py()
        try:
            return Postings.packed(np.frombuffer(data, np.uint8), bounds, length, len(self.lengths))
        except ValueError as error:
            raise RepairError(
                f"{self._file('invert')} is damaged at token {token!r} ({error}): "
                "create the full-text index again"
            ) from error

    def _check(self, kind: str, columns: Sequence[str]) -> None:
        names = LanceFileReader(self._file(kind), self._options).metadata().schema.names
        if not set(columns).issubset(names):
            raise KeyError(f"{self._file(kind)} has {names}, not {columns}")

    def _read(self, kind: str, columns: Sequence[str]) -> Any:
        self._check(kind, columns)
        reader = LanceFileReader(self._file(kind), self._options, list(columns))
        return rows_of(reader.read_all(batch_size=1 << 20)).combine_chunks()

    def _file(self, kind: str) -> str:
        return f"{self._path}_{kind}.lance"


def open_index(
    dataset: Any,
    column: str,
    analyzer: Analyzer,
    options: Mapping[str, str] | None,
    store: ResidentStore,
) -> tuple[IndexSegment, ...] | None:
    """The live segments of the full-text index that a column has with this analyzer.

    None if the dataset has none, or one whose files can't be read here. What is read of a segment
    is cached: it never changes.
    """
    for index in dataset.describe_indices():
        if index.type_url != _TEXT_INDEX or list(index.field_names) != [column]:
            continue
        segments = [_open_segment(dataset, segment, options, store) for segment in index.segments]
        opened = tuple(
            segment for segment in segments if segment is not None and segment.analyzer == analyzer
        )
        if segments and len(opened) == len(segments):
            return opened
    return None


def _open_segment(
    dataset: Any, described: Any, options: Mapping[str, str] | None, store: ResidentStore
) -> IndexSegment | None:
    if described.base_id is not None:
        return None  # in another table's folder
    segment = (dataset.uri, described.uuid)
    path = f"{_folder(segment)}/metadata.lance"
    own = dict(options) if options else None
    try:
        key = Key("index metadata", segment)
        metadata = store.compute(
            key, lambda: dict(LanceFileReader(path, own).metadata().schema.metadata or {}), _size
        )
        if any(metadata.get(name) not in readable for name, readable in _FORMAT.items()):
            return None
        analyzer = Analyzer.of(json.loads(metadata[b"params"]))
        partitions = [
            store.compute(
                Key("index partition", segment, int(number)),
                partial(LancePartition, segment, int(number), own, store),
                lambda segment: segment.nbytes,
            )
            for number in json.loads(metadata[b"partitions"])
        ]
    except (KeyError, ValueError, TypeError, UnsupportedError):
        return None  # its format is newer than this module
    return IndexSegment(analyzer, frozenset(described.fragment_ids), tuple(partitions))


def _folder(segment: Segment) -> str:
    uri, uuid = segment
    return f"{uri.rstrip('/')}/_indices/{uuid}"


def _size(metadata: Mapping[bytes, bytes]) -> int:
    return sum(len(name) + len(value) for name, value in metadata.items())
