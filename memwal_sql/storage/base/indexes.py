"""The vector and full-text indexes of the base table, as plans and generations see them.

A generation gets the same index with the same model (specification 2, "Vector Index
Configuration"): centroids, product quantizer codebook and RaBitQ rotation are the base index's, so
nothing is trained at a flush. Only the bounds of a scalar quantizer can't be given to Lance: each
generation has its own, which is why candidates are ranked by exact distances.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from exec_nodes.base.index_info import TEXT_KIND, IndexInfo
from exec_nodes.base.lazy import lazy_property
from exec_nodes.lance.indexes import indexes_of
from exec_nodes.resident.store import Scope
from memwal_sql.storage.base.index_files import IndexFiles, TextFormat
from memwal_sql.storage.base.memwal_index import IndexDetails

# Parameters of the analyzer of program code alone; Lance refuses them for others.
_CODE_ONLY = ("split_identifiers", "split_on_numerics", "preserve_original", "index_operators")
# Stored among the analyzer's parameters, but not its own.
_NOT_OF_THE_ANALYZER = ("lance_tokenizer", "with_position", "block_size", *_CODE_ONLY)
_CODE = "code"
_KEPT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class IndexRecipe:
    """How to build an index of the base table over the rows of a generation.

    `arguments` are those of Lance's `create_index` for a vector index, of `create_scalar_index` for
    a full-text index, except column, kind and name.
    """

    info: IndexInfo
    arguments: Mapping[str, Any]


class BaseIndexes:
    """The indexes of one version of the base table. Files are read when they are needed, once."""

    def __init__(
        self,
        dataset: Any,
        uri: str,
        details: IndexDetails,
        scope: Scope,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """`uri` as Lance takes it; `scope` keeps what is read of a segment, which never changes."""
        self._dataset = dataset
        self._uri = uri
        self._details = details
        self._scope = scope
        self._options = storage_options

    @lazy_property
    def names(self) -> tuple[str, ...]:
        """Their names, which take no file but the manifest."""
        return searchable_indexes(self._dataset)

    @lazy_property
    def infos(self) -> tuple[IndexInfo, ...]:
        """Every vector and full-text index on one column, in Lance's order."""
        return tuple(info for info, _ in self._searchable())

    def recipes(self) -> tuple[IndexRecipe, ...]:
        """How to build those that are maintained."""
        if not self.names:
            return ()
        return tuple(
            IndexRecipe(info, self._arguments(info, index))
            for info, index in self._searchable()
            if info.maintained
        )

    def _searchable(self) -> Iterator[tuple[IndexInfo, Any]]:
        for index in indexes_of(self._dataset):
            info = self._info(index)
            if info is not None:
                yield info, index

    def _info(self, index: Any) -> IndexInfo | None:
        if len(index.field_names) != 1 or not index.segments:
            return None
        (column,) = index.field_names
        metric = _metric(index)
        if metric:
            # "MemTables automatically inherit vector indexing from base table indexes."
            return IndexInfo(index.name, column, index.index_type, metric)
        if index.index_type.upper() != TEXT_KIND:
            return None
        details = self._details
        maintained = index.name in details.maintained_indexes or bool(details.maintain_all_indexes)
        parameters = analyzer_arguments(self._text_format(index).parameters)
        return IndexInfo(
            index.name, column, TEXT_KIND, parameters=parameters, maintained=maintained
        )

    def _arguments(self, info: IndexInfo, index: Any) -> Mapping[str, Any]:
        if info.is_text:
            text_format = self._text_format(index)
            return {
                **info.parameters,
                "with_position": text_format.parameters["with_position"],
                "block_size": text_format.parameters["block_size"],
                "format_version": text_format.version,
            }
        model: Mapping[str, Any] = self._cached("model", index, lambda: self._model(info, index))
        return model

    def _model(self, info: IndexInfo, index: Any) -> Mapping[str, Any]:
        described = index.details
        centroids = self._dataset.get_ivf_model(info.name).centroids
        model: dict[str, Any] = {
            "metric": info.metric,
            "ivf_centroids": centroids,
            "num_partitions": len(centroids),
        }
        if graph := described.get("hnsw"):
            model["m"] = graph["max_connections"]
            model["ef_construction"] = graph["construction_ef"]
            model["max_level"] = graph["max_level"]
        compression = described.get("compression", {})
        kind = compression.get("type")
        if kind is not None:
            model["num_bits"] = compression["num_bits"]
        if kind == "pq":
            model["num_sub_vectors"] = compression["num_sub_vectors"]
            model["pq_codebook"] = self._files(index).codebook()
        elif kind == "rq":
            model["rabitq_model"] = json.dumps(dict(self._files(index).quantizer()))
        return model

    def _text_format(self, index: Any) -> TextFormat:
        # The description forgets custom stop words.
        text_format: TextFormat = self._cached("text", index, self._files(index).text_format)
        return text_format

    def _cached(self, what: str, index: Any, read: Any) -> Any:
        segments = sorted(segment.uuid for segment in index.segments)
        key = self._scope.key("index recipe", what, *segments)
        return self._scope.store.compute(key, read, _size)

    def _files(self, index: Any) -> IndexFiles:
        return IndexFiles(self._uri, index.segments[0].uuid, self._options)


def searchable_indexes(dataset: Any) -> tuple[str, ...]:
    """Names of the vector and full-text indexes on one column of a Lance table."""
    return tuple(
        index.name
        for index in indexes_of(dataset)
        if len(index.field_names) == 1 and (_metric(index) or index.index_type.upper() == TEXT_KIND)
    )


def analyzer_arguments(stored: Mapping[str, Any]) -> dict[str, Any]:
    """An analyzer's parameters as `lance.tokenize` takes them, from those that an index stores."""
    arguments = {name: value for name, value in stored.items() if name not in _NOT_OF_THE_ANALYZER}
    if stored["base_tokenizer"] == _CODE:
        del arguments["base_tokenizer"]
        arguments["analyzer"] = _CODE
        arguments.update({name: stored[name] for name in _CODE_ONLY})
    return arguments


def _metric(index: Any) -> str:
    metric: str = index.details.get("metric_type", "") if index.details else ""
    return metric.lower()


def _size(part: object) -> int:
    if isinstance(part, Mapping):
        return _KEPT_BYTES + sum(getattr(value, "nbytes", 0) for value in part.values())
    return _KEPT_BYTES
