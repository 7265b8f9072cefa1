"""What every kind of run has in common: which versions a run serves, and when it is made anew."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import ref

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.tasks import background_by
from exec_nodes.lance.fragments import FRAGMENT_BITS
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.keys import KeyReader
from exec_nodes.resident.runs import Coverage, ResidentRuns, Wear
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.text.scoring.open import Tokenizer
from exec_nodes.vectors.resident import VectorReader
from planner.model import TableInfo
from tests.exec_nodes.overlays import allow_overlays, overlay

WORDS = ["fox", "dog", "cat", "owl", "elk"]
Values = dict[int, Any]


def body(number: int) -> str:
    return f"{WORDS[number % 5]} {WORDS[number * 7 % 5]}"


def values_of(kind: str, numbers: Sequence[int]) -> pa.Array:
    """A column, of which each value is made of a number."""
    if kind == "keys":
        return pa.array(numbers, pa.int64())
    if kind == "texts":
        return pa.array(list(map(body, numbers)))
    return pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(numbers, 2), pa.float32()), 2)


class Counted:
    """A builder that notes the fragments it was given."""

    def __init__(self, kind: str, source: LanceSource) -> None:
        self.read: list[list[int]] = []
        builders: dict[str, Callable[[], Any]] = {
            "keys": lambda: KeyReader(source.dataset, source.field("value")),
            "vectors": lambda: VectorReader(source, "value", frozenset()),
            "texts": lambda: Tokenizer(source, "value", Analyzer.of({})),
        }
        self._builder = builders[kind]()

    @property
    def row_bytes(self) -> int:
        return int(self._builder.row_bytes)

    def build(self, fragments: Sequence[Any]) -> Any:
        self.read.append([one.fragment_id for one in fragments])
        return self._builder.build(fragments)

    def nbytes(self, value: Any) -> int:
        return int(self._builder.nbytes(value))


@dataclass
class Version:
    """One version of a table as a reader of runs sees it."""

    kind: str
    source: LanceSource

    def __post_init__(self) -> None:
        self.builder = Counted(self.kind, self.source)

    @property
    def runs(self) -> ResidentRuns[Any]:
        return self.source.runs(self.kind, self.source.field_id("value"))

    def extend(self) -> list[list[int]]:
        """The fragments that are read, after a check of all values."""
        found = self.runs.extend(self.builder)
        assert not found.unread
        assert self.values(found) == self.expected()
        return self.builder.read

    def values(self, found: Coverage[Any]) -> Values:
        """What the runs say of the rows that the version has, by address."""
        values: Values = {}
        for run in found.runs:
            live = set(self.source.addresses(run.fragments.values()).tolist())
            for address, value in self._pairs(run.run.value):
                if address in live and address >> FRAGMENT_BITS in run.fragments:
                    assert address not in values
                    values[address] = value
        return values

    def _pairs(self, value: Any) -> Iterator[tuple[int, Any]]:
        addresses = value.addresses.tolist()
        if self.kind == "keys":
            yield from zip(addresses, value.keys.tolist(), strict=True)
        elif self.kind == "vectors":
            yield from zip(addresses, np.concatenate(value.chunks).tolist(), strict=True)
        else:
            held = {word: set(value.view.postings(word)[0].tolist()) for word in WORDS}
            for row, address in enumerate(addresses):
                yield address, {word for word in WORDS if row in held[word]}

    def expected(self) -> Values:
        rows = self.source.dataset.scanner(columns=["value"], with_row_address=True).to_table()
        values = rows["value"].to_pylist()
        if self.kind == "texts":
            values = [set(text.split()) for text in values]
        return dict(zip(rows["_rowaddr"].to_pylist(), values, strict=True))


class Table:
    """A table of three fragments of ten rows, and the versions that it had."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.uri, self.store = kind, str(folder / "t"), ResidentStore()
        self.append(30, mode="create", max_rows_per_file=10)

    def append(self, count: int, **options: Any) -> None:
        numbers = range(count)
        columns = {"id": pa.array(numbers), "value": values_of(self.kind, numbers)}
        lance.write_dataset(pa.table(columns), self.uri, **{"mode": "append", **options})

    def at(self, version: int | None = None, store: ResidentStore | None = None) -> Version:
        dataset = lance.dataset(self.uri, version=version)
        info = TableInfo(dataset.schema, ("id",))
        store = self.store if store is None else store
        etag = str(dataset.version)
        return Version(self.kind, LanceSource.base(dataset, info, etag=etag, resident=store))


@pytest.fixture(params=["keys", "vectors", "texts"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(request.param, tmp_path)


def test_a_later_version_reads_its_new_fragments(table: Table) -> None:
    assert table.at().extend() == [[0, 1, 2]]
    for step in range(3):
        table.append(2)
        lance.dataset(table.uri).delete(f"id = {20 + step}")
        assert table.at().extend() == [[3 + step]]
    for version in (1, 3, 5, None):
        assert table.at(version).extend() == [], "the newest runs serve older versions, too"


def test_a_restored_version_has_rows_that_were_deleted_when_they_were_read(table: Table) -> None:
    dataset = lance.dataset(table.uri)
    before = dataset.version
    dataset.delete("id % 3 = 0")
    assert table.at().extend() == [[0, 1, 2]]
    lance.dataset(table.uri, version=before).restore()
    assert table.at().extend() == []


def test_a_fragment_with_an_overlay_is_read_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_overlays(monkeypatch)
    before = table.at()
    before.extend()
    for rows in ([5], [5, 7]):
        values = values_of(table.kind, [99] * len(rows))
        overlay(lance.dataset(table.uri), 1, "value", values, rows)
        assert table.at().extend() == [[1]]
    before.builder.read.clear()
    assert before.extend() == []


def test_a_column_that_was_replaced_is_read_again(table: Table) -> None:
    table.at().extend()
    dataset = lance.dataset(table.uri)
    changed = pa.table({"id": [3], "value": values_of(table.kind, [77])})
    made, fields = dataset.get_fragment(0).update_columns(changed, left_on="id", right_on="id")
    operation = lance.LanceOperation.Update(updated_fragments=[made], fields_modified=fields)
    lance.LanceDataset.commit(table.uri, operation, read_version=dataset.version)
    assert table.at().extend() == [[0]]


def test_worn_runs_become_one_beside_the_largest(table: Table) -> None:
    most = Wear.most_runs
    lengths = []
    for step in range(2 * most):
        version = table.at()
        read = version.extend()
        lengths.append(len(version.runs.coverage().runs))
        expected = [3 + step - 1] if step else [0, 1, 2]
        if step in (most, 2 * most - 1):  # with those since the last time
            expected = list(range(3, 3 + step))
        assert read == [expected]
        table.append(1)
    assert lengths == [*range(1, most + 1), *range(2, most + 1), 2]


def test_runs_are_made_anew_when_more_than_half_of_their_rows_are_gone(table: Table) -> None:
    before = table.at()
    before.extend()
    table.append(3)
    lance.dataset(table.uri).delete("id > 1 AND id < 29")
    lance.dataset(table.uri).optimize.compact_files()
    after = table.at()
    assert after.extend() == [[one.fragment_id for one in after.source.dataset.get_fragments()]]
    assert len(after.runs.coverage().runs) == 1
    before.builder.read.clear()
    assert before.extend() == [[0, 1, 2]], "none of them is left"


def test_a_share_of_the_fragments_is_read_alone_and_found_in_a_whole(table: Table) -> None:
    version = table.at()
    share = Version(table.kind, version.source.share(frozenset({1})))
    found = share.runs.extend(share.builder)
    assert share.builder.read == [[1]]
    addresses = {a for a in share.expected() if a >> FRAGMENT_BITS == 1}
    assert share.values(found).keys() == addresses
    assert version.extend() == [[0, 2]]


def test_what_is_evicted_with_its_table_is_read_again(table: Table) -> None:
    version = table.at()
    version.extend()
    gone = ref(version.runs.coverage().runs[0].run)
    table.store.evict(version.source.uri)
    gc.collect()
    assert gone() is None
    assert version.runs.coverage().unread_rows == 30
    assert version.extend() == [[0, 1, 2]] * 2


def test_what_does_not_fit_is_handed_out_or_left_alone(table: Table) -> None:
    version = table.at(store=ResidentStore(1024))
    assert version.runs.read(version.builder, 1 << 40, eager=lambda: True).unread_rows == 30
    assert version.builder.read == []
    for _ in range(2):
        version.extend()
    assert version.builder.read == [[0, 1, 2]] * 2


@pytest.fixture
def later() -> Iterator[list[Callable[[], object]]]:
    """What waits to be done in the background."""
    waiting: list[Callable[[], object]] = []
    with background_by(waiting.append):
        yield waiting


def test_runs_are_read_once_calls_have_paid_for_it(
    table: Table, later: list[Callable[[], object]]
) -> None:
    version = table.at()
    saved = 30 * version.builder.row_bytes // 3
    for call in range(3):
        assert not later, call
        assert version.runs.read(version.builder, saved).runs == []
    version.runs.read(version.builder, saved)
    (read,) = later
    read()
    assert version.values(version.runs.read(version.builder, 0)) == version.expected()


def test_little_that_is_new_is_read_at_once_and_more_in_the_background(
    table: Table, later: list[Callable[[], object]], within: Any
) -> None:
    table.at().extend()
    table.append(3)
    version = table.at()
    within(Admission.set(inline=3 * version.builder.row_bytes - 1))
    for _ in range(3):
        assert version.runs.read(version.builder, 0).unread_rows == 3
    assert len(later) == 1
    within(Admission.set(inline=3 * version.builder.row_bytes))
    assert version.runs.read(version.builder, 0).unread_rows == 0
    assert version.builder.read == [[3]]


def test_runs_that_nobody_asked_for_are_not_in_use(table: Table) -> None:
    version = table.at()
    assert not version.runs.take_use()
    version.runs.extend(version.builder)
    assert not version.runs.take_use()
    version.runs.coverage()
    assert table.at().runs.take_use()
