"""`create_index` and `drop_index`: what they refuse before they write, and what they note."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import ConflictError
from memwal_sql.index import create
from memwal_sql.index.kinds import (
    SCALAR_KINDS,
    VECTOR_KINDS,
    IvfParameters,
    PqParameters,
    TextParameters,
    VectorParameters,
)
from memwal_sql.storage.base.memwal_index import read_details
from memwal_sql.storage.objects.open import open_store
from tests.each import each
from tests.index.tables import DIMENSION, rows, table_of
from tests.model.writing import flush_rows, merge_rows

REFUSED: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    (("nope", "FTS"), {}, "'nope' has no texts"),
    (("body", "GIN"), {}, "index_type='GIN'"),
    (("body", 7), {}, "index_type=7"),
    (("body", "FTS"), {"name": ""}, "name=''"),
    (("body", "FTS"), {"name": "__lance_mem_wal"}, "can't be the name"),
    (("body", "FTS"), {"nprobes": 1}, r"unknown parameters \['nprobes'\]"),
    (("body", "FTS"), {"block_size": 256}, "unknown parameters"),
    (("body", "FTS"), {"base_tokenizer": "no"}, "unknown base tokenizer"),
    (("body", "FTS"), {"language": "Klingon"}, "Klingon"),
    (("body", "FTS"), {"stem": "yes"}, "stem"),
    (("body", "FTS"), {"max_token_length": -1}, "max_token_length"),
    (("v", "FTS"), {}, "'v' has no texts"),
    (("body", "IVF_FLAT"), {}, "fixed_size_list"),
    (("v", "IVF_FLAT"), {"num_sub_vectors": 2}, r"unknown parameters \['num_sub_vectors'\]"),
    (("v", "IVF_FLAT"), {"metric": "hamming"}, "hamming is for uint8"),
    (("v", "IVF_FLAT"), {"metric": "manhattan"}, "metric='manhattan'"),
    (("v", "IVF_FLAT"), {"num_partitions": 0}, "num_partitions=0"),
    (("v", "IVF_FLAT"), {"num_partitions": 1.5}, "num_partitions=1.5"),
    (("v", "IVF_FLAT"), {"num_partitions": 301}, "more than the 300 vectors"),
    (("v", "IVF_PQ"), {"num_sub_vectors": 3}, "must divide"),
    (("v", "IVF_PQ"), {"num_bits": 6}, "num_bits=6"),
    (("v", "IVF_PQ"), {"num_bits": 4, "num_sub_vectors": 1}, "must be even"),
    (("v", "IVF_PQ"), {"pq_codebook": np.ones((1, 256, 8))}, "needs the ivf_centroids"),
    (("v", "IVF_FLAT"), {"ivf_centroids": np.ones((2, 3))}, r"must be \(partitions, 8\)"),
    (("v", "IVF_FLAT"), {"ivf_centroids": [[float("nan")] * 8]}, "finite"),
    (("v", "IVF_FLAT"), {"ivf_centroids": np.ones((2, 8)), "num_partitions": 3}, "does not fit"),
    (("v", "IVF_HNSW_SQ"), {"m": 2}, "m=2"),
    (("v", "IVF_RQ"), {"num_bits": 0}, "num_bits=0"),
    (("lang", "BTREE"), {"stem": True}, "takes no parameters"),
    (("lang", "ZONEMAP"), {"rows_per_zone": 9}, "takes no parameters"),
    (("lang", "NGRAM"), {}, "NGRAM is for contains, which no query of this package"),
    (("lang", "label_list"), {}, "LABEL_LIST is for array_has .* make it with lance"),
    (("lang", "RTREE"), {}, "RTREE is for functions of geometries"),
    (("lang", "MINHASHLSH"), {}, "MINHASHLSH is for searches by MinHash"),
    (("v", "BLOOMFILTER"), {}, "Lance refuses"),
    (("v", "IVF_PQ"), {"sample_rate": 1 << 70}, "Lance refuses"),
    (("id", "BTREE"), {"name": "id_idx"}, "already"),
    (("id", "BITMAP"), {"name": "id_idx", "replace": True}, "finds primary keys"),
    (("lang", "BTREE"), {"name": "id_idx", "replace": True}, "not on 'lang'"),
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mw.Table:
    return table_of(tmp_path_factory.mktemp("refused"))


@each("arguments, named, message", REFUSED)
def test_a_call_that_does_not_fit_is_refused_before_anything_is_written(
    table: mw.Table, arguments: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    version = lance.dataset(table.uri).version
    with pytest.raises(mw.InvalidCallError, match=message):
        table.create_index(*arguments, **named)
    assert lance.dataset(table.uri).version == version


@each(
    "kind, known",
    [
        ("IVF_SQ", IvfParameters.__annotations__),
        ("IVF_PQ", {**IvfParameters.__annotations__, **PqParameters.__annotations__}),
        ("IVF_HNSW_PQ", VectorParameters.__annotations__),
        ("FTS", TextParameters.__annotations__),
    ],
)
def test_an_unknown_parameter_of_an_index_is_refused_with_those_it_has(
    table: mw.Table, kind: str, known: dict[str, object]
) -> None:
    with pytest.raises(mw.InvalidCallError, match=r"unknown parameters \['stemm'\]") as raised:
        table.create_index("body" if kind == "FTS" else "v", kind, stemm=1)  # type: ignore[call-arg]
    assert set(re.findall(r"'(\w+)'", str(raised.value))) == {"stemm", *known}


@each("kind", ["IVF_PQ", "IVF_HNSW_PQ", "IVF_FLAT"])
@each("base", [0, 100])
def test_too_few_rows_to_train_on_is_an_error_with_the_remedy(
    kind: str, base: int, tmp_path: Path
) -> None:
    table = table_of(tmp_path, base)
    flush_rows(table, rows(base, base + 300))
    if kind == "IVF_FLAT" and base:
        table.create_index("v", kind)
        return
    with pytest.raises(mw.InvalidCallError, match=r"table\.merge\(\)"):
        table.create_index("v", kind)
    table.merge()
    table.create_index("v", kind)
    assert table.vector_search("v", rows(base, base + 1)["v"][0], 1)["id"].to_pylist() == [base]


def test_a_full_text_index_may_come_before_any_row(tmp_path: Path) -> None:
    table = table_of(tmp_path, 0)
    table.create_index("body", "INVERTED")
    with table.writer() as writer:
        writer.upsert(rows(0, 5))
        assert table.full_text_search("body", "row3")["id"].to_pylist() == [3]
        writer.flush()
    assert table.full_text_search("body", "row3")["id"].to_pylist() == [3]


def test_a_model_from_elsewhere_needs_no_training(tmp_path: Path) -> None:
    table = table_of(tmp_path, 5)
    rng = np.random.default_rng(3)
    centroids = rng.normal(size=(3, DIMENSION)).astype(np.float32)
    codebook = rng.normal(size=(2, 256, DIMENSION // 2)).astype(np.float32)
    table.create_index(
        "v", "IVF_PQ", num_sub_vectors=2, ivf_centroids=centroids, pq_codebook=codebook
    )
    found = lance.dataset(table.uri).get_ivf_model("v_idx").centroids
    assert np.array_equal(found.flatten().to_numpy().reshape(-1, DIMENSION), centroids)


def test_indexes_are_noted_as_maintained_and_let_go(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    table.create_index("v", "IVF_FLAT")
    table.create_index("body", "FTS", name="texts")
    table.create_index("body", "FTS", name="texts", replace=True, stem=False)
    table.create_index("lang", "BITMAP")
    table.create_index("lang", "ZONEMAP", name="zones")
    assert _maintained(table) == ("v_idx", "texts")
    table.drop_index("v_idx")
    assert _maintained(table) == ("texts",)
    assert {index.name for index in lance.dataset(table.uri).describe_indices()} == {
        "id_idx",
        "texts",
        "lang_idx",
        "zones",
        "__lance_mem_wal",
    }
    shown = {row["name"]: row["maintained"] for row in table.indexes().to_pylist()}
    assert shown == {"id_idx": True, "texts": True, "lang_idx": False, "zones": False}


@each("name", ["nope", "__lance_mem_wal", "id_idx"])
def test_only_indexes_for_searches_and_filters_are_dropped(table: mw.Table, name: str) -> None:
    with pytest.raises(mw.InvalidCallError, match=name):
        table.drop_index(name)


def test_merge_progress_survives_an_index(tmp_path: Path) -> None:
    """Protocol rule 19: index details are not compare-and-swap."""
    table = table_of(tmp_path)
    merge_rows(table, rows(300, 310))
    merged = _details(table).merged_generations
    table.create_index("body", "FTS")
    assert _details(table).merged_generations == merged
    assert merged


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (RuntimeError("Commit conflict for version 3"), ConflictError),
        (OSError("Retryable commit conflict"), ConflictError),
        (OSError("No space left on device"), mw.OutcomeUnknownError),
        (RuntimeError("LanceError(Index): no such quantizer"), mw.MemWalError),
    ],
)
def test_only_what_may_work_next_time_says_so(
    tmp_path: Path, raised: Exception, kind: type[mw.MemWalError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise raised

    table = table_of(tmp_path / "t")
    monkeypatch.setattr(lance.LanceDataset, "create_scalar_index", fail)
    with pytest.raises(mw.MemWalError, match=str(raised)[-10:]) as caught:
        table.create_index("body", "FTS")
    assert type(caught.value) is kind
    assert "body_idx" not in _maintained(table)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (mw.StoreUnavailableError, mw.OutcomeUnknownError),
        (mw.DeadlineExceededError, mw.DeadlineExceededError),
    ],
)
def test_what_comes_between_the_commits_of_an_index_says_which_call_helps(
    raised: type[mw.MemWalError],
    kind: type[mw.MemWalError],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unavailable(*_: Any) -> None:
        raise raised("no answer")

    table = table_of(tmp_path / "t")
    with monkeypatch.context() as patched:
        patched.setattr(create, "change_details", unavailable)
        with pytest.raises(kind, match=r"make it again.*replace=True.*no answer"):
            table.create_index("body", "FTS")
    assert "body_idx" not in _maintained(table)
    table.create_index("body", "FTS", replace=True)
    assert "body_idx" in _maintained(table)
    with monkeypatch.context() as patched:
        patched.setattr(create, "_commit", unavailable)
        with pytest.raises(kind, match=r"drop it again: no answer"):
            table.drop_index("body_idx")
    assert "body_idx" not in _maintained(table)
    table.drop_index("body_idx")
    assert "body_idx" not in table.indexes()["name"].to_pylist()


def _details(table: mw.Table) -> Any:
    found = read_details(open_store(table.uri), lance.dataset(table.uri))
    assert found is not None
    return found.details


def _maintained(table: mw.Table) -> tuple[str, ...]:
    names: tuple[str, ...] = _details(table).maintained_indexes
    return names


@each("metric", [None, "hamming"])
def test_vectors_of_bits_have_no_quantizer(tmp_path: Path, metric: str | None) -> None:
    table = table_of(tmp_path, element=pa.uint8())
    for kind in [kind for kind in VECTOR_KINDS if not kind.endswith("FLAT")]:
        with pytest.raises(mw.InvalidCallError, match="use IVF_FLAT or IVF_HNSW_FLAT"):
            table.create_index("v", kind, metric=metric)


def test_a_second_index_on_a_key_column_can_be_dropped_again(tmp_path: Path) -> None:
    """The last one by which keys are found stays, whichever that is."""
    table = table_of(tmp_path)
    table.create_index("id", "BITMAP", name="bits")
    table.create_index("id", "BTREE", name="other")
    for name in ("bits", "id_idx"):
        table.drop_index(name)
    with pytest.raises(mw.InvalidCallError, match="only 'other' finds the primary key column 'id'"):
        table.drop_index("other")
    assert table.indexes()["name"].to_pylist() == ["other"]
    assert table.get([7])["id"].to_pylist() == [7]


def test_rows_of_a_closed_writer_become_those_that_an_index_is_trained_on(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", rows(0, 1).schema, "id")
    with table.writer() as writer:
        writer.upsert(rows(0, 300))
    with pytest.raises(mw.InvalidCallError, match="upsert one of them again"):
        table.create_index("v", "IVF_FLAT")
    with table.writer() as writer:
        writer.upsert(rows(7, 8))
        writer.flush()
    table.merge()
    table.create_index("v", "IVF_FLAT")
    assert table.count_rows() == 300


# Filters by a scalar index of the base table find the live rows, wherever these are.


SCHEMA = pa.schema({"id": pa.int64(), "k": pa.int64()})
CONDITIONS = {
    "k = 3": lambda k: k == 3,
    "k IN (1, 4)": lambda k: k in (1, 4),
    "k > 5": lambda k: k > 5,
    "k >= 2 AND k < 4": lambda k: 2 <= k < 4,
    "NOT (k = 3)": lambda k: k != 3,
}


@pytest.mark.parametrize("kind", SCALAR_KINDS)
def test_a_scalar_index_changes_no_answer(kind: str, tmp_path: Path) -> None:
    live = {i: i % 9 for i in range(300)}
    rows = pa.table({"id": list(live), "k": list(live.values())}, schema=SCHEMA)
    lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=100)
    table = mw.enable(tmp_path / "t", primary_key="id")
    table.create_index("k", kind)

    def check() -> None:
        for condition, holds in CONDITIONS.items():
            found = sorted(table.to_arrow(["id"], condition)["id"].to_pylist())
            assert found == [i for i, k in sorted(live.items()) if holds(k)], condition

    check()
    with table.writer() as writer:
        for shift in (1, 2):
            new = {i: (i + shift) % 9 for i in range(shift, 400, 7)}
            writer.upsert({"id": list(new), "k": list(new.values())})
            live.update(new)
            gone = list(range(shift, 300, 31))
            writer.delete(gone)
            for key in gone:
                live.pop(key, None)
            check()
            writer.flush()
            table.merge()
            check()
            assert "k_idx" in table.build_indexes()
            check()
    (about,) = (row for row in table.indexes().to_pylist() if row["name"] == "k_idx")
    assert not about["maintained"]


@pytest.mark.parametrize("kind", SCALAR_KINDS)
def test_any_index_beside_the_one_that_finds_keys_is_replaced(kind: str, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for _ in range(2):
        table.create_index("id", kind, name="more", replace=True)
    made = {one["name"]: one["type"].upper() for one in table.indexes().to_pylist()}
    assert made["more"] == kind
    if kind == "BTREE":  # it finds keys now
        table.create_index("id", "BITMAP", name="id_idx", replace=True)
        with pytest.raises(mw.InvalidCallError, match="'more' finds primary keys"):
            table.create_index("id", "BITMAP", name="more", replace=True)
    else:
        with pytest.raises(mw.InvalidCallError, match="'id_idx' finds primary keys"):
            table.create_index("id", "BITMAP", name="id_idx", replace=True)
