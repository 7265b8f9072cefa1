"""Every generation gets the base's indexes with the base's model (specification 2, "Vector Index
Configuration" and "MemTable Indexing"; rules of correctness, 5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.index_info import IndexInfo
from memwal_sql.storage.base.indexes import IndexRecipe
from memwal_sql.storage.generation.write import build_indexes
from tests.index.tables import (
    DIMENSION,
    generations,
    index_files,
    indexes,
    rows,
    same_model,
    schema_of,
    table_of,
)
from tests.model.writing import flush_rows
from tests.soak import usual

VECTORS: list[tuple[str, pa.DataType, dict[str, Any]]] = [
    ("IVF_FLAT", pa.float32(), {"metric": "cosine"}),
    ("IVF_FLAT", pa.float64(), {}),
    ("IVF_FLAT", pa.uint8(), {}),
    ("IVF_PQ", pa.float32(), {}),
    ("IVF_PQ", pa.float16(), {"num_sub_vectors": 2, "metric": "dot"}),
    ("IVF_PQ", pa.float64(), {"num_sub_vectors": 4, "num_bits": 4}),
    ("IVF_SQ", pa.float32(), {"metric": "cosine"}),
    ("IVF_RQ", pa.float32(), {"num_bits": 1}),
    ("IVF_HNSW_FLAT", pa.float32(), {"m": 8, "ef_construction": 40}),
    ("IVF_HNSW_PQ", pa.float32(), {"m": 8, "max_level": 3}),
    ("IVF_HNSW_SQ", pa.float32(), {"m": 8}),
]
TEXTS: list[dict[str, Any]] = [
    {},
    {"stem": False, "remove_stop_words": True, "custom_stop_words": ["word1", "row"]},
    {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 4, "prefix_only": True},
    {"base_tokenizer": "whitespace", "lower_case": False, "max_token_length": None},
    {"base_tokenizer": "icu", "language": "French", "ascii_folding": False},
    {"with_position": True, "max_token_length": 5},
    {"analyzer": "code", "split_identifiers": True, "index_operators": True},
]


def _texts(values: Sequence[str | None]) -> pa.Table:
    count = len(values)
    return rows(1000, 1000 + count).set_column(1, "body", pa.array(values, pa.string()))


@pytest.mark.parametrize(("kind", "element", "parameters"), VECTORS)
def test_a_generation_has_the_base_s_vector_index(
    kind: str, element: pa.DataType, parameters: dict[str, Any], tmp_path: Path
) -> None:
    table = table_of(tmp_path, 1100, element)
    table.create_index("v", kind, num_partitions=4, **parameters)
    flush_rows(table, rows(300, 420, element))
    (source,) = generations(table)
    same_model(lance.dataset(table.uri), source.dataset, "v_idx")
    assert indexes(source)["v_idx"].num_rows_indexed == 120


@pytest.mark.parametrize("parameters", TEXTS, ids=lambda p: ",".join(p) or "default")
def test_a_generation_has_the_base_s_analyzer(parameters: dict[str, Any], tmp_path: Path) -> None:
    table = table_of(tmp_path, base=20)
    table.create_index("body", "FTS", **parameters)
    flush_rows(table, rows(20, 40))
    base = lance.dataset(table.uri)
    (source,) = generations(table)
    (of_base,) = (one for one in base.describe_indices() if one.name == "body_idx")
    ours = index_files(source.dataset, indexes(source)["body_idx"]).text_format()
    assert ours == index_files(base, of_base).text_format()
    given = {name: value for name, value in parameters.items() if name != "analyzer"}
    assert given.items() <= ours.parameters.items()


def test_what_an_index_stores_of_custom_stop_words_is_kept(tmp_path: Path) -> None:
    """Lance's description of an index forgets them; a generation without them ranks otherwise."""
    table = table_of(tmp_path, base=20)
    table.create_index("body", "FTS", custom_stop_words=["word1"])
    flush_rows(table, rows(20, 40))
    (info,) = table.snapshot().indexes
    assert info.parameters["custom_stop_words"] == ["word1"]
    assert table.full_text_search("body", "word1").num_rows == 0
    assert table.full_text_search("body", "word2").num_rows == 6


@pytest.mark.parametrize(
    "texts", [[None] * 5, [""] * 5, ["the", "of the"], ["a cat"], ["x" * 100_000]]
)
def test_few_empty_or_odd_texts_are_flushed(texts: list[str | None], tmp_path: Path) -> None:
    table = table_of(tmp_path, base=20)
    table.create_index("body", "FTS")
    flush_rows(table, _texts(texts))
    (source,) = generations(table)
    assert "body_idx" in indexes(source)
    found = table.full_text_search("body", "cat").num_rows
    assert found == sum("cat" in (text or "") for text in texts)


KINDS = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_RQ", "IVF_HNSW_SQ")


@pytest.mark.parametrize(("vectors", "kind"), usual([*product(("none", "one", "nan"), KINDS)], 8))
def test_few_or_no_vectors_are_flushed(kind: str, vectors: str, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.create_index("v", kind, num_partitions=4)
    vector = {"none": None, "one": [1.0] * DIMENSION, "nan": [float("nan")] * DIMENSION}[vectors]
    with table.writer() as writer:
        writer.upsert(
            [{"id": 1000, "body": "new", "v": vector}, {"id": 1001, "body": None, "v": None}],
            missing="null",
        )
        writer.flush()
    (source,) = generations(table)
    assert "v_idx" in indexes(source)
    found = table.vector_search("v", [1.0] * DIMENSION, 1)["id"].to_pylist()
    assert (found == [1000]) == (vectors == "one")


def test_tombstones_alone_are_flushed(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.create_index("v", "IVF_PQ", num_partitions=4)
    table.create_index("body", "FTS")
    with table.writer() as writer:
        writer.delete([1, 2, 3])
        writer.flush()
    assert table.full_text_search("body", "word1", 400)["id"].to_pylist() == list(range(8, 300, 7))
    assert not {1, 2, 3} & set(table.vector_search("v", [0.0] * DIMENSION, 300)["id"].to_pylist())


def test_an_open_writer_builds_a_new_index_from_its_next_flush_on(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    with table.writer() as writer:
        writer.upsert(rows(300, 310))
        writer.flush()
        mw.open_table(table.uri).create_index("body", "FTS")
        writer.upsert(rows(310, 320))
        writer.flush()
        newer, older = generations(table)
        assert "body_idx" in indexes(newer)
        assert "body_idx" not in indexes(older)
        assert table.full_text_search("body", "word3", 400).num_rows == len(range(3, 320, 7))


def test_an_index_that_lance_dropped_is_missed_by_nobody(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.create_index("body", "FTS")
    table.create_index("v", "IVF_FLAT", num_partitions=2)
    with table.writer() as writer:
        writer.upsert(rows(300, 310))
        writer.flush()
        dataset = lance.dataset(table.uri)
        dataset.drop_index("body_idx")
        dataset.drop_index("v_idx")
        writer.upsert(rows(310, 320))
        writer.flush()
    newer, _ = generations(table)
    assert not indexes(newer)
    assert table.snapshot().indexes == ()
    assert table.full_text_search("body", "word3", 400).num_rows == len(range(3, 320, 7))
    assert table.vector_search("v", rows(315, 316)["v"][0], 1)["id"].to_pylist() == [315]


def test_indexes_that_lance_made_are_inherited(tmp_path: Path) -> None:
    """Specification 2: "MemTables automatically inherit vector indexing from base table indexes";
    others are maintained from when the table was enabled."""
    uri = str(tmp_path / "table")
    dataset = lance.write_dataset(rows(0, 300), uri, schema=schema_of())
    dataset.create_scalar_index("body", "INVERTED")
    table = mw.enable(uri, primary_key="id")
    dataset = lance.dataset(uri)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    dataset.create_scalar_index("lang", "INVERTED")
    flush_rows(table, rows(300, 310))
    (source,) = generations(table)
    assert set(indexes(source)) == {"body_idx", "v_idx"}
    maintained = {one.name: one.maintained for one in table.snapshot().indexes}
    assert maintained == {"body_idx": True, "v_idx": True, "lang_idx": False}
    assert table.full_text_search("lang", "en", 400).num_rows == 155


def test_vectors_move_to_new_centroids_while_both_indexes_are_maintained(tmp_path: Path) -> None:
    """The migration of specification 2, "Vector Index Configuration"."""
    table = table_of(tmp_path, 1600)
    table.create_index("v", "IVF_PQ", num_partitions=2)
    with table.writer() as writer:
        writer.upsert(rows(300, 400))
        writer.flush()
        table.create_index("v", "IVF_PQ", name="v_new", num_partitions=5, num_sub_vectors=4)
        writer.upsert(rows(400, 500))
        writer.flush()
        base = lance.dataset(table.uri)
        newest = generations(table)[0]
        for name in ("v_idx", "v_new"):
            same_model(base, newest.dataset, name)
        table.drop_index("v_idx")
        writer.upsert(rows(500, 600))
        writer.flush()
    kept = [set(indexes(source)) for source in generations(table)]
    assert kept == [{"v_new"}, {"v_idx", "v_new"}, {"v_idx"}]
    assert [one.name for one in table.snapshot().indexes] == ["v_new"]
    for n in (10, 350, 450, 550):
        assert table.vector_search("v", rows(n, n + 1)["v"][0], 1)["id"].to_pylist() == [n]


def test_an_index_built_anew_goes_with_its_new_model(tmp_path: Path) -> None:
    table = table_of(tmp_path, 1600)
    table.create_index("v", "IVF_PQ", num_partitions=2)
    with table.writer() as writer:
        writer.upsert(rows(300, 400))
        writer.flush()
        table.create_index("v", "IVF_PQ", num_partitions=6, replace=True)
        writer.upsert(rows(400, 500))
        writer.flush()
    newest, oldest = generations(table)
    same_model(lance.dataset(table.uri), newest.dataset, "v_idx")
    assert len(oldest.dataset.get_ivf_model("v_idx").centroids) == 2
    for n in (10, 350, 450):
        assert table.vector_search("v", rows(n, n + 1)["v"][0], 1)["id"].to_pylist() == [n]


def test_what_lance_refuses_to_index_goes_without_an_index(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A column may have been made anew with another dimension since its rows were written."""
    dataset = lance.write_dataset(rows(0, 10), str(tmp_path / "generation"))
    narrow = {"ivf_centroids": np.ones((1, 4), np.float32), "metric": "l2"}
    wrong = IndexRecipe(IndexInfo("v_idx", "v", "IVF_FLAT", "l2"), narrow)
    absent = IndexRecipe(IndexInfo("x_idx", "x", "INVERTED"), {})
    right = IndexRecipe(IndexInfo("body_idx", "body", "INVERTED"), {})
    build_indexes(dataset, [wrong, absent, right], "a generation")
    assert [index.name for index in dataset.describe_indices()] == ["body_idx"]
    assert "a generation goes without the index v_idx" in caplog.text
