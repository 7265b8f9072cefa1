"""Tables with vectors and texts, and what their generations' indexes hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from exec_nodes.sources.lance_source import LanceSource
from memwal_sql.storage.base.index_files import IndexFiles

DIMENSION = 8
FLOAT = pa.float32()


def schema_of(element: pa.DataType = FLOAT) -> pa.Schema:
    """A key, a text, a label and a vector."""
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("body", pa.string()),
            pa.field("lang", pa.string()),
            pa.field("v", pa.list_(element, DIMENSION)),
        ]
    )


def rows(start: int, stop: int, element: pa.DataType = FLOAT) -> pa.Table:
    """Rows with the keys from `start` up to `stop`; the same key has the same row."""
    rng = np.random.default_rng(7)
    values = rng.normal(size=(stop, DIMENSION))[start:]
    if element == pa.uint8():
        values = np.abs(values * 80).clip(0, 255)
    flat = values.astype(element.to_pandas_dtype()).ravel()
    return pa.table(
        {
            "id": np.arange(start, stop),
            "body": [f"the word{n % 7} of row{n}" for n in range(start, stop)],
            "lang": ["en" if n % 2 else "de" for n in range(start, stop)],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(flat, element), DIMENSION),
        },
        schema=schema_of(element),
    )


def table_of(
    folder: Path, base: int = 300, element: pa.DataType = FLOAT, **enable: Any
) -> mw.Table:
    """A table whose base has the rows 0 to `base` - 1."""
    uri = str(folder / "table")
    lance.write_dataset(rows(0, base, element), uri, schema=schema_of(element))
    return mw.enable(uri, primary_key="id", **enable)


def generations(table: mw.Table) -> list[LanceSource]:
    """The flushed generations of a table of one region, newest first."""
    (region,) = table.snapshot().regions
    return [source for source in region.sources if isinstance(source, LanceSource)]


def indexes(source: LanceSource) -> dict[str, Any]:
    """A generation's indexes by name, as Lance describes them."""
    return {index.name: index for index in source.dataset.describe_indices()}


def index_files(dataset: Any, index: Any) -> IndexFiles:
    """The files of an index that has one segment."""
    (segment,) = index.segments
    return IndexFiles(dataset.uri, segment.uuid)


def same_model(base: Any, generation: Any, name: str) -> None:
    """Fail unless both datasets have the index `name` with one model."""
    (ours,) = (one for one in base.describe_indices() if one.name == name)
    (theirs,) = (one for one in generation.describe_indices() if one.name == name)
    assert theirs.index_type == ours.index_type
    assert theirs.details == ours.details
    assert generation.get_ivf_model(name).centroids.equals(base.get_ivf_model(name).centroids)
    own, other = index_files(base, ours), index_files(generation, theirs)
    if "PQ" in ours.index_type:
        assert other.codebook().equals(own.codebook())
    if "RQ" in ours.index_type:
        assert _rotation(other.quantizer()) == _rotation(own.quantizer())


def _rotation(quantizer: Mapping[str, Any]) -> Sequence[int]:
    signs: Sequence[int] = quantizer["fast_rotation_signs"]
    assert signs
    return signs
