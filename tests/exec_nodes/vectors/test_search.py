"""One source is searched in memory, by its index or by reading it: the same rows are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from exec_nodes.base.columns import Filter, RowAddresses
from exec_nodes.base.index_info import IndexInfo
from exec_nodes.base.tasks import background_by
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.vectors import index_search
from exec_nodes.vectors import resident as held
from exec_nodes.vectors.column import Metric
from exec_nodes.vectors.index_search import IndexUse, blocklist, few_rows
from exec_nodes.vectors.nearest import Bounds, NearestQuery
from exec_nodes.vectors.search import SourceSearch
from planner.model import TableInfo
from tests.exec_nodes.vectors.vectors import Matrix, arrow, measured
from tests.model.resident import another_store

ROWS, DIMENSION = 3000, 8
NONE: RowAddresses = np.empty(0, np.uint64)
RANDOM = np.random.default_rng(12)
MATRIX = RANDOM.normal(size=(ROWS, DIMENSION)).astype(np.float32)
QUERIES = RANDOM.normal(size=(3, DIMENSION)).astype(np.float32)
INDEX = IndexInfo("v_idx", "v", "IVF_FLAT", "l2")


def table(ids: Sequence[int] | range, matrix: Matrix) -> pa.Table:
    return pa.table(
        {"id": pa.array(ids), "n": pa.array([i % 100 for i in ids]), "v": arrow(matrix)}
    )


def source_of(folder: Path) -> LanceSource:
    dataset = lance.dataset(folder)
    info = TableInfo(dataset.schema, ("id",))
    return LanceSource.base(dataset, info, etag=str(folder))


def indexed(folder: Path, **options: Any) -> LanceSource:
    dataset = lance.write_dataset(table(range(ROWS), MATRIX), folder, **options)
    dataset.create_index("v", "IVF_FLAT", num_partitions=16, name="v_idx")
    return source_of(folder)


def where(text: str | None, low: int, high: int) -> Filter:
    """low <= n < high, which Lance takes as `text`."""

    def evaluate(batch: pa.RecordBatch) -> pa.BooleanArray:
        n = batch["n"]
        return pc.and_(pc.greater_equal(n, low), pc.less(n, high))

    return Filter(f"{low} <= n < {high}", evaluate, ("n",), text)


@pytest.fixture
def nothing_held() -> Iterator[None]:
    """No vectors fit into memory."""
    with another_store(0):
        yield


@pytest.fixture(params=["in memory", "by index", "read"])
def index(request: pytest.FixtureRequest, within: Any) -> IndexInfo | None:
    """Each way to search; the index probes every partition."""
    if request.param != "in memory":
        within(another_store(0))
    if request.param != "by index":
        return None
    within(IndexUse.set(few_least=0, few_most=0, probes=index_search.ALL_PROBES))
    return INDEX


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanceSource]:
    yield indexed(tmp_path_factory.mktemp("base") / "t", max_rows_per_file=1000)


def expected(
    source: LanceSource,
    counts: np.ndarray[Any, Any],
    most: int,
    metric: Metric = "l2",
    bounds: Bounds | None = None,
) -> list[list[int]]:
    """The ids of the nearest rows of each query among those for which `counts` is true."""
    wanted = []
    for query in QUERIES:
        distances = measured(metric, MATRIX, query)
        rows = np.flatnonzero(counts)
        if bounds is not None:
            rows = rows[bounds.met(distances[rows])]
        wanted.append(rows[np.argsort(distances[rows], kind="stable")][:most].tolist())
    return wanted


def found(
    source: LanceSource,
    query: NearestQuery,
    most: int,
    mask: RowAddresses = NONE,
    filters: tuple[Filter, ...] = (),
    index: IndexInfo | None = None,
) -> list[list[int]]:
    """The ids that are found, by query."""
    rows = SourceSearch(source, query, filters, index).nearest(most, mask)
    ids = []
    for place in range(len(query.vectors)):
        own = rows.where(rows.queries == place)
        assert (np.diff(own.distances) >= 0).all()
        ids.append(source.rows_at(own.addresses, ["id"])["id"].to_pylist())
    return ids


QUERY = NearestQuery("v", QUERIES, 10, "l2")


def test_the_nearest_rows_that_count_are_found_for_each_query(
    source: LanceSource, index: IndexInfo | None
) -> None:
    """#6888, #6899: stale rows pushed live ones out; #6929: filters came too late."""
    numbers, rows = np.arange(ROWS) % 100, source.matching(())
    order = np.argsort(measured("l2", MATRIX, QUERIES[0]))
    masks = [order[: int(ROWS * share)] for share in (0, 0.2, 0.9, 0.99, 1)]
    masks.append(np.arange(0, ROWS, 3))
    filters = [((), numbers >= 0)]
    for low, high in ((0, 50), (7, 8), (0, 100), (200, 300)):
        pushed, odd = where(f"n >= {low} AND n < {high}", low, high), where(None, low, high)
        met = (numbers >= low) & (numbers < high)
        filters += [(some, met) for some in ((pushed,), (odd,), (pushed, odd))]
    bounds = [Bounds(None, 4.0), Bounds(6.0, None), Bounds(5.0, 5.2), Bounds(None, 0.0)]
    cases = [
        *((mask, filters[0], Bounds()) for mask in masks),
        *((masks[-1], some, Bounds()) for some in filters),
        *((masks[0], some, limits) for some in (filters[0], filters[2]) for limits in bounds),
    ]
    for masked, (some, met), limits in cases:
        counts = met.copy()
        counts[masked] = False
        query = replace(QUERY, bounds=limits)
        wanted = expected(source, counts, 10, bounds=limits)
        assert found(source, query, 10, np.sort(rows[masked]), some, index) == wanted
    every = np.ones(ROWS, np.bool_)
    alone = replace(QUERY, vectors=QUERIES[:1])
    assert found(source, alone, 10, index=index) == expected(source, every, 10)[:1]
    assert found(source, QUERY, 5000, index=index) == expected(source, every, 5000)


@pytest.mark.usefixtures("nothing_held")
def test_few_rows_are_measured_one_by_one(source: LanceSource) -> None:
    """However few partitions are probed, rows that are few behind mask and filter are found."""
    numbers = np.arange(ROWS) % 100
    query = replace(QUERY, nprobes=1)
    for mask, filters, counts in (
        (NONE, (where("n = 3", 3, 4),), numbers == 3),
        (source.matching(())[: ROWS - 40], (), np.arange(ROWS) >= ROWS - 40),
    ):
        assert found(source, query, 10, mask, filters, INDEX) == expected(source, counts, 10)
        assert not isinstance(few_rows(source, filters[0].lance if filters else None, mask), float)


@pytest.mark.usefixtures("nothing_held")
def test_an_index_that_gives_too_few_rows_is_asked_further(
    source: LanceSource, within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """#7916: all live rows lie outside the partitions that are probed."""
    within(IndexUse.set(few_least=0, few_most=0))
    monkeypatch.setattr(index_search.IndexSearch, "_probes", 1)
    near = np.argsort(measured("l2", MATRIX, QUERIES[0]))[: ROWS - 20]
    counts = np.ones(ROWS, np.bool_)
    counts[near] = False
    alone = replace(QUERY, vectors=QUERIES[:1])
    wanted = expected(source, counts, 10)[:1]
    assert found(source, alone, 10, source.matching(())[~counts], (), INDEX) == wanted


@pytest.mark.usefixtures("nothing_held")
def test_the_share_of_rows_that_count_is_estimated(source: LanceSource) -> None:
    def share(condition: str | None, mask: RowAddresses = NONE) -> float:
        found = few_rows(source, condition, mask)
        assert isinstance(found, float)
        return found

    assert share(None) == 1.0
    assert share(None, source.matching(())[:900]) == pytest.approx(0.7)
    assert share("n < 80") == pytest.approx(0.8, rel=0.05)
    assert share("n < 80", source.matching(())[:300]) == pytest.approx(0.72, rel=0.05)


@pytest.mark.usefixtures("nothing_held")
def test_rows_that_the_index_does_not_cover_are_found(
    tmp_path: Path, index: IndexInfo | None
) -> None:
    """Appended and replaced rows, before and after a compaction."""
    source = indexed(tmp_path / "t", max_rows_per_file=1000)
    near = (QUERIES[0] + 0.01 * RANDOM.normal(size=(4, DIMENSION))).astype(np.float32)
    dataset = source.dataset
    dataset.insert(table(range(ROWS, ROWS + 2), near[:2]))
    dataset = lance.dataset(tmp_path / "t")
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(table([5, 6], near[2:]))
    dataset = lance.dataset(tmp_path / "t")
    dataset.delete("id = 7")
    for step in range(2):
        source = source_of(tmp_path / "t")
        assert set(found(source, QUERY, 4, index=index)[0]) == {ROWS, ROWS + 1, 5, 6}
        whole = found(source, QUERY, ROWS + 10, index=index)[0]
        assert len(whole) == len(set(whole)) == ROWS + 1
        mask = source.matching((where("n = 0", 0, 1),))
        kept = found(source, QUERY, 10, mask, index=index)[0]
        assert set(kept) & {5, 6, ROWS, ROWS + 1} == {5, 6, ROWS + 1}
        if not step:
            lance.dataset(tmp_path / "t").optimize.compact_files()


@pytest.mark.usefixtures("nothing_held")
def test_stable_row_ids_are_masked_and_found(tmp_path: Path, index: IndexInfo | None) -> None:
    source = indexed(tmp_path / "t", max_rows_per_file=1000, enable_stable_row_ids=True)
    source.dataset.delete("id < 100")
    lance.dataset(tmp_path / "t").optimize.compact_files()
    source = source_of(tmp_path / "t")
    numbers = np.arange(ROWS)
    mask = source.matching((where("n < 50", 0, 50),))
    counts = (numbers >= 100) & (numbers % 100 >= 50)
    assert found(source, QUERY, 10, mask, index=index) == expected(source, counts, 10)


@pytest.mark.usefixtures("nothing_held")
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_of_several_indexes_the_one_with_the_metric_is_asked(
    tmp_path: Path, metric: Metric, within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance itself would take the first one, or read every vector; also for rows that none of them
    covers."""
    within(IndexUse.set(few_least=0, few_most=0))
    monkeypatch.setattr(SourceSearch, "_read_all", None)
    dataset = lance.write_dataset(table(range(ROWS), MATRIX), tmp_path / "t")
    for name in ("dot", "l2", "cosine"):
        dataset.create_index("v", "IVF_FLAT", num_partitions=16, name=name, metric=name)
    dataset.insert(table([ROWS], QUERIES[:1] * 3))
    source = source_of(tmp_path / "t")
    query = replace(QUERY, metric=metric, nprobes=1000)
    chosen = IndexInfo(metric, "v", "IVF_FLAT", metric)
    matrix = np.concatenate([MATRIX, QUERIES[:1] * 3])
    for ids, one in zip(found(source, query, 10, index=chosen), QUERIES, strict=True):
        assert ids == np.argsort(measured(metric, matrix, one), kind="stable")[:10].tolist()
    plan = index_search.IndexSearch(source, chosen, query, None, NONE, 1.0)
    assert plan._chosen(source.dataset)["index_segments"]


def test_vectors_are_held_once_searches_have_paid_for_reading_them(
    tmp_path: Path, within: Any
) -> None:
    within(another_store())
    source = indexed(tmp_path / "t")
    size = 4 * ROWS * DIMENSION
    within(Admission.set(search=ROWS * (5 * DIMENSION + 24) // 4))
    later: list[Callable[[], object]] = []
    within(background_by(later.append))

    def hold(source: LanceSource, *, eager: bool = False) -> bool:
        vectors = held.resident_vectors(source, "v", "l2", eager=lambda: eager)
        return vectors is not None

    assert not any(hold(source) for _ in range(4))
    (read,) = later
    read()
    assert hold(source)
    other = indexed(tmp_path / "u")
    assert hold(other, eager=True)
    within(another_store(2 * size))
    assert not hold(other, eager=True)


def test_what_is_derived_from_a_mask_goes_with_it(source: LanceSource) -> None:
    masks = [np.array([row], np.uint64) for row in (1, 2)]
    made = [held.derived(source, "first", mask, mask.sum, lambda _: 8) for mask in masks * 2]
    assert made == [1, 2, 1, 2]


def test_null_vectors_never_match(tmp_path: Path, index: IndexInfo | None) -> None:
    vectors = [None if row % 3 == 0 else vector for row, vector in enumerate(MATRIX.tolist())]
    rows = table(range(ROWS), MATRIX).drop(["v"])
    rows = rows.append_column("v", pa.array(vectors, pa.list_(pa.float32(), DIMENSION)))
    dataset = lance.write_dataset(rows, tmp_path / "t")
    dataset.create_index("v", "IVF_FLAT", num_partitions=4, name="v_idx")
    source = source_of(tmp_path / "t")
    counts = np.arange(ROWS) % 3 != 0
    assert found(source, QUERY, 10, index=index) == expected(source, counts, 10)
    assert found(source, QUERY, ROWS, index=index) == expected(source, counts, ROWS)


def test_more_partitions_are_probed_where_fewer_rows_count(source: LanceSource) -> None:
    def probes(share: float, **options: Any) -> int:
        query = replace(QUERY, **options)
        return index_search.IndexSearch(source, INDEX, query, None, NONE, share)._probes

    assert [probes(share) for share in (1.0, 0.5, 0.1)] == [20, 40, 200]
    assert probes(0.1, nprobes=3) == 30
    assert probes(0.0) == index_search.ALL_PROBES


def test_lance_masks_exactly_these_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    for stable in (False, True):
        rows = pa.table({"id": pa.array(range(3000), pa.int64())})
        folder = tmp_path / f"{stable}"
        dataset = lance.write_dataset(
            rows, folder, max_rows_per_file=1000, enable_stable_row_ids=stable
        )
        dataset.delete("id < 10")
        dataset.optimize.compact_files(target_rows_per_fragment=1500)
        dataset = lance.dataset(folder)
        info = TableInfo(rows.schema, ("id",))
        source = LanceSource.base(dataset, info, etag="", resident=ResidentStore())
        held = source.matching(())
        for count in (0, 1, 700, len(held)):
            masked = random.permutation(held)[:count]
            left = dataset.scanner(
                columns=[],
                with_row_address=True,
                row_addr_blocklist=blocklist(source.row_ids(masked)),
            ).to_table()["_rowaddr"]
            assert sorted(left.to_pylist()) == np.setdiff1d(held, masked).tolist()
