"""Details of an index that are in Lance's files and not in its description.

A segment of an index is a folder `_indices/{uuid}/`. `metadata.lance` of a full-text index has the
parameters of the analyzer, `auxiliary.idx` of a vector index the quantizer. Other files and formats
are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader

from exec_nodes.lance.errors import is_damage, is_not_found, is_panic
from memwal_sql.errors import SourceGoneError, StoreUnavailableError
from memwal_sql.storage.decoding import damaged, decoding
from memwal_sql.storage.proto_gen import lance_index_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

_DROP = "drop the index and create it again"
_ELEMENTS: Mapping[int, Callable[[bytes], np.ndarray[Any, Any]]] = {
    pb.Tensor.FLOAT16: lambda data: np.frombuffer(data, "<f2"),
    pb.Tensor.FLOAT32: lambda data: np.frombuffer(data, "<f4"),
    pb.Tensor.FLOAT64: lambda data: np.frombuffer(data, "<f8"),
}


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How a full-text index was built: the parameters as stored, and the version of its files."""

    parameters: Mapping[str, Any]
    version: int


class IndexFiles:
    """The files of one segment of an index.

    Raises SourceGoneError when they are gone, StoreUnavailableError when they can't be read,
    CorruptFileError when they are not what Lance writes.
    """

    def __init__(
        self, table_uri: str, segment: str, storage_options: Mapping[str, str] | None = None
    ) -> None:
        """`table_uri` as Lance takes it; `segment` is the segment's UUID."""
        self._folder = f"{table_uri.rstrip('/')}/_indices/{segment}"
        self._options = dict(storage_options) if storage_options else None

    def text_format(self) -> TextFormat:
        with self._reader("metadata.lance") as reader:
            metadata = reader.metadata().schema.metadata
            # The first format had no number.
            version = int(metadata.get(b"format_version", b"1"))
            return TextFormat(json.loads(metadata[b"params"]), version)

    def quantizer(self) -> Mapping[str, Any]:
        with self._reader("auxiliary.idx") as reader:
            return _quantizer(reader)

    def codebook(self) -> pa.FixedSizeListArray:
        """The codebook of a product quantizer, as `create_index(pq_codebook=...)` takes it: the
        2 ** bits centroids of the first sub-vector, then those of the second, ..."""
        with self._reader("auxiliary.idx") as reader:
            stored = _quantizer(reader)
            data = bytes(reader.read_global_buffer(stored["codebook_position"]))
            tensor = pb.Tensor.FromString(data)
            values = pa.array(_ELEMENTS[tensor.data_type](tensor.data))
            width = stored["dimension"] // stored["num_sub_vectors"]
            return pa.FixedSizeListArray.from_arrays(values, width)

    @contextmanager
    def _reader(self, name: str) -> Iterator[Any]:
        path = f"{self._folder}/{name}"
        with decoding(path, "as Lance writes it", _DROP):
            try:
                yield LanceFileReader(path, storage_options=self._options)
            except (OSError, ValueError) as error:
                if is_damage(error):
                    raise damaged(path, "as Lance writes it", error, _DROP) from error
                if is_not_found(error):
                    raise SourceGoneError(f"{path} is gone: {error}") from error
                if isinstance(error, OSError):
                    raise StoreUnavailableError(
                        f"{path} could not be read; try again: {error}"
                    ) from error
                raise
            except BaseException as error:
                if is_panic(error):
                    raise damaged(path, "as Lance writes it", error, _DROP) from error
                raise


def _quantizer(reader: Any) -> Mapping[str, Any]:
    (stored,) = json.loads(reader.metadata().schema.metadata[b"storage_metadata"])
    metadata: Mapping[str, Any] = json.loads(stored)
    return metadata
