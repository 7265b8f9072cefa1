"""Whatever happens to a Lance table, all that is resident of its versions equals a fresh read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.columns import ROW_ADDRESS, RowAddresses
from exec_nodes.base.tasks import background_by
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.lance.fragments import fragment_identity
from exec_nodes.liveness.stale_sets import STALE_SETS
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.runs import Wear
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.text.scoring.open import SOURCE_TEXTS
from exec_nodes.vectors import resident as resident_vectors
from exec_nodes.vectors.nearest import NearestQuery
from exec_nodes.vectors.search import SourceSearch
from memwal_sql.storage.base.manifest import read_index_section
from memwal_sql.storage.objects.open import open_store
from planner.model import TableInfo
from tests.exec_nodes.overlays import allow_overlays, overlay
from tests.exec_nodes.tables import memtable
from tests.exec_nodes.vectors.vectors import Matrix, measured
from tests.model.resident import another_store
from tests.soak import SOAK

WIDTH = 2
WORDS = ["fox", "dog", "cat", "owl", "elk"]
TEXTS = ("body", "title")
ANALYZER = Analyzer.of({})
NONE: RowAddresses = np.empty(0, np.uint64)
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def resident(monkeypatch: pytest.MonkeyPatch, within: Any) -> None:
    """Nothing is resident when a test begins, and everything from its first use on, at once."""
    allow_overlays(monkeypatch)
    within(another_store())
    within(Admission.set(lookup=1 << 30, fetch=1 << 30))
    within(background_by(lambda call: call()))


class Table:
    """A Lance table, and what plain Lance does to it, drawn by a seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.uri = str(folder / "t")
        self._next = 0
        self.recreate()

    @property
    def dataset(self) -> Any:
        return lance.dataset(self.uri)

    @property
    def keys(self) -> range:
        """Those that rows have or had, and some others."""
        return range(-1, self._next + 2)

    def rows(self, count: int) -> pa.Table:
        """New rows, with columns of the names of now."""
        ids = range(self._next, self._next + count)
        self._next += count
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "body": self.texts(count),
                "title": self.texts(count),
                "vec": self.vectors(count),
            }
        )

    def texts(self, count: int) -> pa.Array:
        return pa.array([" ".join(self.random.choices(WORDS, k=2)) for _ in range(count)])

    def vectors(self, count: int) -> pa.Array:
        values = pa.array([self.random.random() for _ in range(count * WIDTH)], pa.float32())
        return pa.FixedSizeListArray.from_arrays(values, WIDTH)

    def new(self, name: str, count: int) -> pa.Array:
        """Other values for a column."""
        if name == "id":
            self._next += count
            return pa.array(range(self._next - count, self._next), pa.int64())
        return self.vectors(count) if name == "vec" else self.texts(count)

    def append(self) -> None:
        lance.write_dataset(self.rows(4), self.uri, mode="append")

    def delete(self) -> None:
        self.dataset.delete(f"id % 7 = {self.random.randrange(7)}")

    def update(self) -> None:
        """Rows that go to new fragments."""
        ids = self.dataset.to_table(columns=["id"])["id"].to_pylist()
        some = self.random.sample(ids, min(3, len(ids)))
        rows = self.rows(len(some)).set_column(0, "id", pa.array(some, pa.int64()))
        self.dataset.merge_insert("id").when_matched_update_all().execute(rows)

    def replace_column(self) -> None:
        """Values of one column in a file of their own, for all rows of a fragment."""
        dataset = self.dataset
        fragment = self.random.choice(dataset.get_fragments())
        ids = fragment.to_table(columns=["id"])["id"].to_pylist()
        name = self.random.choice(["body", "title", "vec"])
        changed = pa.table(
            {"id": pa.array(ids[:2], pa.int64()), name: self.new(name, len(ids[:2]))}
        )
        made, fields = fragment.update_columns(changed, left_on="id", right_on="id")
        operation = lance.LanceOperation.Update(updated_fragments=[made], fields_modified=fields)
        lance.LanceDataset.commit(self.uri, operation, read_version=dataset.version)

    def overlay(self) -> None:
        """Values of one column that are laid over some of a fragment's."""
        dataset = self.dataset
        fragment = self.random.choice(dataset.get_fragments())
        name = self.random.choice(["id", "body", "body", "title", "vec"])
        offsets = sorted(self.random.sample(range(fragment.physical_rows), 2))
        overlay(dataset, fragment.fragment_id, name, self.new(name, 2), offsets)

    def swap_names(self) -> None:
        for old, new in (("body", "between"), ("title", "body"), ("between", "title")):
            self.dataset.alter_columns({"path": old, "name": new})

    def drop_and_add(self) -> None:
        """A column of the same name and type, which some rows have no value of."""
        name = self.random.choice(TEXTS)
        self.dataset.drop_columns([name])
        if self.random.random() < 0.5:
            self.dataset.add_columns({name: "concat('fox ', cast(id % 3 as string))"})
        else:
            self.dataset.add_columns(pa.schema([pa.field(name, pa.string())]))

    def compact(self) -> None:
        self.dataset.optimize.compact_files(target_rows_per_fragment=12)

    def restore(self) -> None:
        version = self.random.choice(self.versions[-6:]).version
        lance.dataset(self.uri, version=version).restore()

    def index(self) -> None:
        """Of keys, texts or vectors: built, or brought up to date."""
        dataset = self.dataset
        known = {index.name for index in dataset.describe_indices()}
        if known and self.random.random() < 0.5:
            dataset.optimize.optimize_indices(num_indices_to_merge=self.random.randint(0, 1))
            return
        name = self.random.choice(["id", "body", "body", "vec"])
        if name == "vec":
            dataset.create_index(name, "IVF_FLAT", name=name, num_partitions=1, replace=True)
        else:
            kind = "BTREE" if name == "id" else "INVERTED"
            dataset.create_scalar_index(name, kind, name=name, replace=True)

    def recreate(self) -> None:
        """Another table of the same name, whose versions have the same numbers."""
        shutil.rmtree(self.uri, ignore_errors=True)
        lance.write_dataset(self.rows(18), self.uri, max_rows_per_file=6)
        self.versions = [self.dataset]

    def step(self) -> str:
        happen: list[tuple[Callable[[], None], int]] = [
            (self.append, 2),
            (self.delete, 2),
            (self.update, 2),
            (self.replace_column, 3),
            (self.overlay, 5),
            (self.swap_names, 1),
            (self.drop_and_add, 1),
            (self.compact, 1),
            (self.restore, 3),
            (self.index, 3),
            (self.recreate, 1),
        ]
        (one,) = self.random.choices([call for call, _ in happen], [odds for _, odds in happen])
        one()
        self.versions.append(self.dataset)
        return one.__name__


class Reader:
    """Reads versions of one table, with all that is resident of the others."""

    def __init__(self, table: Table) -> None:
        self._table = table
        # Of keys that come and go, most of them of the table.
        self._newer = memtable([(key, 1) for key in range(0, 200, 3)], 1)

    def read(self, dataset: Any, query: Matrix, *, warm_up: bool) -> dict[str, object]:
        """What every kind of artefact says of a version's live rows, by kind."""
        info = TableInfo(dataset.schema, ("id",))
        tag = read_index_section(open_store(self._table.uri), dataset.version).rows_tag
        source = LanceSource.base(dataset, info, etag=tag)
        if warm_up:
            source.extend()
            resident_vectors.extend(source, ["vec"])
            STALE_SETS.extend(source, [self._newer])
            SOURCE_TEXTS.extend(source, lambda: NONE)
        names = dataset.schema.names
        for _ in range(3):  # from the files, which keeps them, and from memory
            parts = [source.scan(names, (), None, part) for part in range(source.parts)]
            batches = [batch for part in parts for batch in part]
            scanned = pa.Table.from_batches(batches, batches[0].schema) if batches else None
        rows: list[Row] = [] if scanned is None else scanned.to_pylist()
        addresses = np.array([row[ROW_ADDRESS] for row in rows], np.uint64)
        for _ in range(2):
            taken = source.rows_at(addresses, names).to_pylist() if rows else []
        stale = STALE_SETS.of_base(source, [self._newer])
        asked = NearestQuery("vec", query, 5, "l2")
        search = SourceSearch(source, asked, (), None)
        return {
            "scan": sorted(rows, key=lambda row: row[ROW_ADDRESS]),
            "rows": {int(a): row for a, row in zip(addresses, taken, strict=True)},
            "row addresses": source.addresses(source.whole_fragments.values()).tolist(),
            "keys": {key: self._row(source, key, names) for key in self._table.keys},
            "rows of keys": [
                self._rows_of(source, keys) for keys in (self._table.keys, self._table.keys[::3])
            ],
            "stale sets": stale.tolist(),
            "vectors": [search.nearest(5, mask).addresses.tolist() for mask in (NONE, stale)],
            "texts": [self._words(source, name, s) for name in TEXTS for s in (NONE, stale, NONE)],
        }

    def fresh(self, dataset: Any, query: Matrix) -> dict[str, object]:
        """The same, as Lance reads it."""
        rows = dataset.scanner(with_row_address=True).to_table().to_pylist()
        rows.sort(key=lambda row: row[ROW_ADDRESS])
        plain = [{name: row[name] for name in row if name != ROW_ADDRESS} for row in rows]
        addresses = [row[ROW_ADDRESS] for row in rows]
        by_address = dict(zip(addresses, plain, strict=True))
        by_key = {row["id"]: row for row in plain}
        stale = {a for a, row in by_address.items() if row["id"] in range(0, 200, 3)}
        matrix = np.array([row["vec"] for row in plain], np.float32).reshape(-1, WIDTH)
        order = np.argsort(measured("l2", matrix, query[0]), kind="stable")
        nearest = [addresses[place] for place in order]
        return {
            "scan": rows,
            "rows": by_address,
            "row addresses": addresses,
            "keys": {key: by_key.get(key) for key in self._table.keys},
            "rows of keys": [
                [row[ROW_ADDRESS] for row in rows if row["id"] in keys]
                for keys in (self._table.keys, self._table.keys[::3])
            ],
            "stale sets": sorted(stale),
            "vectors": [[a for a in nearest if a not in gone][:5] for gone in (set(), stale)],
            "texts": [
                {
                    word: [
                        a
                        for a, row in by_address.items()
                        if a not in gone and word in (row[name] or "").split()
                    ]
                    for word in WORDS
                }
                for name in TEXTS
                for gone in (set[int](), stale, set[int]())
            ],
        }

    def _row(self, source: LanceSource, key: int, names: list[str]) -> object:
        row = source.last(KeyBatch(pa.table({"id": pa.array([key], pa.int64())})), names)
        return None if row is None else row[0].to_pylist()[0]

    def _rows_of(self, source: LanceSource, keys: Sequence[int]) -> list[int]:
        rows = source.rows_of(pa.array([*keys] * 2, pa.int64()))
        assert rows is not None
        addresses: list[int] = rows.tolist()
        return addresses

    def _words(self, source: LanceSource, name: str, stale: RowAddresses) -> dict[str, list[int]]:
        live = SOURCE_TEXTS.of(source, name, ANALYZER).at(stale)
        flags = live.text.by_document(live.live)
        words = {}
        for word in WORDS:
            documents, _ = live.text.postings(word)
            found = documents[flags[documents]]
            words[word] = sorted(live.text.addresses[found].tolist())
            assert live.document_frequency(word) == len(found)
        return words


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3 * SOAK))
def test_what_is_resident_equals_a_fresh_read(tmp_path: Path, seed: int, within: Any) -> None:
    table = Table(tmp_path, seed)
    within(Wear.set(most_runs=table.random.choice([2, 8])))
    within(Admission.set(inline=table.random.choice([0, 1 << 20])))
    reader, steps = Reader(table), list[str]()
    for _ in range(14):
        # The newest, then an older one again, as while queries move on.
        for dataset in (table.versions[-1], table.random.choice(table.versions)):
            query = np.array([[table.random.random() for _ in range(WIDTH)]], np.float32)
            found = reader.read(dataset, query, warm_up=table.random.random() < 0.5)
            for kind, content in reader.fresh(dataset, query).items():
                assert found[kind] == content, f"seed {seed}, {kind} after {steps}"
        steps.append(table.step())


def test_one_function_tells_a_fragment_s_values(tmp_path: Path) -> None:
    """Everything that may change a value changes it, and deleting rows does not."""
    table = Table(tmp_path, 1)

    def told() -> list[object]:
        return [fragment_identity(table.uri, one) for one in table.dataset.get_fragments()]

    before = told()
    assert len(set(before)) == 3
    table.dataset.delete("id = 1")
    table.swap_names()
    assert told() == before
    for change in (table.overlay, table.replace_column, table.overlay):
        change()
        assert sum(one != other for one, other in zip(told(), before, strict=True)) == 1
        before = told()
