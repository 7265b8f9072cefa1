"""The base index builder (protocol rule 17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain import index_builder
from memwal_sql.maintain.progress import Progress
from tests.model.merging import details_of, manifests
from tests.model.writing import merge_rows

WIDTH = 8
VECTOR = pa.list_(pa.float32(), WIDTH)
SCHEMA = pa.schema([("id", pa.int64()), ("vec", VECTOR), ("body", pa.string())])


def _rows(ids: range) -> pa.Table:
    random = np.random.default_rng(ids.start)
    values = random.random(len(ids) * WIDTH, dtype=np.float32) * (1 + ids.start)
    return pa.table(
        {
            "id": list(ids),
            "vec": pa.FixedSizeListArray.from_arrays(values, WIDTH).cast(VECTOR),
            "body": [f"number {n % 17}" for n in ids],
        },
        schema=SCHEMA,
    )


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    """A table with a vector and a full-text index over rows in its base."""
    uri = str(tmp_path / "t")
    dataset = lance.write_dataset(_rows(range(600)), uri)
    dataset.create_index("vec", "IVF_PQ", num_partitions=4, num_sub_vectors=2)
    dataset.create_scalar_index("body", "INVERTED", with_position=False)
    return mw.enable(uri, "id")


def _merge(table: mw.Table, *parts: range) -> None:
    for ids in parts:
        merge_rows(table, _rows(ids), durable=False)


def _index(uri: str, name: str) -> Any:
    return next(one for one in lance.dataset(uri).describe_indices() if one.name == name)


def _is_covered(uri: str, name: str) -> bool:
    return index_builder.covers_everything(lance.dataset(uri), _index(uri, name))


def _model(uri: str) -> list[Any]:
    centroids: list[Any] = lance.dataset(uri).get_ivf_model("vec_idx").centroids.to_pylist()
    return centroids


def test_every_index_catches_up_and_says_so(table: mw.Table) -> None:
    _merge(table, range(500, 900))
    assert not any(_is_covered(table.uri, name) for name in ("id_idx", "vec_idx", "body_idx"))
    told: list[Progress] = []
    assert sorted(table.build_indexes(progress=told.append)) == ["body_idx", "id_idx", "vec_idx"]
    assert all(_is_covered(table.uri, name) for name in ("id_idx", "vec_idx", "body_idx"))
    assert [(one.done, one.total, one.unit) for one in told] == [
        (n, 3, "indexes") for n in (1, 2, 3)
    ]
    (region,) = manifests(table.uri)
    for name in ("id_idx", "vec_idx", "body_idx"):
        assert details_of(table.uri).index_catchup[name][region] == 1
    version = lance.dataset(table.uri).version
    assert table.build_indexes() == []
    assert lance.dataset(table.uri).version == version


def test_vector_indexes_keep_their_centroids_however_often_they_are_built(
    table: mw.Table,
) -> None:
    """Specification 2, "Vector Index Configuration": distances stay comparable."""
    before = _model(table.uri)
    segments = []
    for start in range(600, 1500, 100):
        _merge(table, range(start, start + 100))
        table.build_indexes(indexes=["vec_idx"])
        assert _model(table.uri) == before
        segments.append(len(_index(table.uri, "vec_idx").segments))
    assert segments == [2, 3, 4, 5, 6, 7, 8, 1, 2]
    assert not _is_covered(table.uri, "body_idx")
    found = lance.dataset(table.uri).to_table(
        columns=["id"],
        nearest={"column": "vec", "q": _rows(range(1200, 1400))["vec"][5].as_py(), "k": 20,
                 "nprobes": 4, "refine_factor": 70},
    )  # fmt: skip
    assert found["id"].to_pylist()[0] == 1205  # every row is refined: codes of 600 rows are coarse


def test_progress_that_a_compaction_cleared_is_written_again(table: mw.Table) -> None:
    """Protocol rule 17: `index_catchup` is a cache."""
    _merge(table, range(600, 700), range(700, 800))
    table.build_indexes()
    (region,) = manifests(table.uri)
    lance.dataset(table.uri).optimize.compact_files(target_rows_per_fragment=10_000)
    assert details_of(table.uri).index_catchup == {}
    table.build_indexes()
    catchup = details_of(table.uri).index_catchup
    assert {name: progress[region] for name, progress in catchup.items()} == {
        "id_idx": 2, "vec_idx": 2, "body_idx": 2
    }  # fmt: skip


def test_an_unknown_index_is_refused(table: mw.Table) -> None:
    with pytest.raises(mw.InvalidCallError, match=r"no indexes \['nope'\].*vec_idx"):
        table.build_indexes(indexes=["nope"])


def test_merges_in_between_make_the_builder_try_again(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    _merge(table, range(600, 700))
    latest = index_builder.latest_dataset
    calls = 0

    def overtaken(context: Any) -> Any:
        nonlocal calls
        calls += 1
        dataset = latest(context)
        if calls == 1:
            _merge(table, range(650, 800))
        return dataset

    monkeypatch.setattr(index_builder, "latest_dataset", overtaken)
    table.build_indexes()
    monkeypatch.undo()
    (region,) = manifests(table.uri)
    marks = details_of(table.uri)
    assert marks.merged_generations[region] == 2
    for name, progress in marks.index_catchup.items():
        assert progress[region] == (2 if _is_covered(table.uri, name) else 1)
    table.build_indexes()
    assert _is_covered(table.uri, "id_idx")
