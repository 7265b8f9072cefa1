"""Whatever happens to a Lance table, all that is kept of its fragments equals a fresh read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from exec_nodes.base.columns import ROW_ADDRESS
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.lance.fragments import fragment_identity
from exec_nodes.resident import key_lookups, warm_columns
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.text.postings.analyzer import Analyzer
from exec_nodes.text.scoring.open import SourceTexts
from exec_nodes.vectors import resident as held
from planner.model import TableInfo

WIDTH = 2
WORDS = ["fox", "dog", "cat", "owl", "elk"]
TEXTS = ("body", "title")
ANALYZER = Analyzer.of({})
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[ResidentStore]:
    """Everything is kept from its first use on, at once, and nothing is when a test begins."""
    cache = ResidentStore()
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")

    monkeypatch.setattr(held, "STORE", cache)
    monkeypatch.setattr(key_lookups, "ROWS_PER_LOOKUP", 1 << 30)
    monkeypatch.setattr(warm_columns, "_BYTES_PER_FETCH", 1 << 30)
    for module in (held, key_lookups, warm_columns):
        monkeypatch.setattr(module, "in_background", lambda call: bool(call()) or True)
    yield cache


class Table:
    """A Lance table, and what plain Lance does to it, drawn by a seed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.uri = str(folder / "t")
        self._next = 0
        lance.write_dataset(self.rows(18), self.uri, max_rows_per_file=6)

    @property
    def dataset(self) -> Any:
        return lance.dataset(self.uri)

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
        (field,) = (one.id() for one in dataset.lance_schema.fields() if one.name() == name)
        values = pa.table({name: self.new(name, 2)})
        file = f"over{dataset.version}-{self.random.random()}.lance"
        with LanceFileWriter(f"{self.uri}/data/{file}", values.schema) as writer:
            writer.write_batch(values)
        known = fragment.data_files()[0]
        version = known.file_major_version, known.file_minor_version
        made = lance.LanceOperation.DataOverlayFile(DataFile(file, [field], [0], *version), offsets)
        group = lance.LanceOperation.DataOverlayGroup(fragment.fragment_id, [made])
        operation = lance.LanceOperation.DataOverlay([group])
        lance.LanceDataset.commit(self.uri, operation, read_version=dataset.version)

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
        versions = [one["version"] for one in self.dataset.versions()]
        lance.dataset(self.uri, version=self.random.choice(versions[-6:])).restore()

    def index(self) -> None:
        """Of texts: built, or brought up to date."""
        dataset = self.dataset
        if dataset.describe_indices():
            dataset.optimize.optimize_indices(num_indices_to_merge=self.random.randint(0, 1))
        else:
            dataset.create_scalar_index("body", "INVERTED", name="body_idx")

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
        ]
        (one,) = self.random.choices([call for call, _ in happen], [odds for _, odds in happen])
        one()
        return one.__name__


class Reader:
    """Reads versions of one table, with all that was kept of the others."""

    def __init__(self) -> None:
        self._cache = ResidentStore()
        self._texts = SourceTexts(self._cache)

    def read(self, dataset: Any, number: int) -> dict[str, object]:
        """What every kind of kept thing says of a version's live rows, by kind."""
        info = TableInfo(dataset.schema, ("id",))
        source = LanceSource.base(dataset, info, etag=str(number), resident=self._cache)
        names = dataset.schema.names
        found: dict[str, object] = {}
        for _ in range(3):  # from the files, which keeps them, and from memory
            parts = [source.scan(names, (), None, part) for part in range(source.parts)]
            batches = [batch for part in parts for batch in part]
            scanned = pa.Table.from_batches(batches, batches[0].schema) if batches else None
        rows: list[Row] = [] if scanned is None else scanned.to_pylist()
        found["scan"] = sorted(rows, key=lambda row: row[ROW_ADDRESS])
        addresses = np.array([row[ROW_ADDRESS] for row in rows], np.uint64)
        for _ in range(2):
            taken = source.rows_at(addresses, names).to_pylist() if rows else []
        found["rows"] = {int(a): row for a, row in zip(addresses, taken, strict=True)}
        found["keys"] = {row["id"]: self._row(source, row["id"], names) for row in rows}
        vectors = held.resident_vectors(source, "vec", 4 * WIDTH, "l2", eager=lambda: True)
        assert vectors is not None
        found["vectors"] = dict(pair for run in vectors for pair in _present(source, run))
        found["texts"] = {name: self._words(source, name) for name in TEXTS}
        return found

    def _row(self, source: LanceSource, key: int, names: list[str]) -> object:
        row = source.last(KeyBatch(pa.table({"id": pa.array([key], pa.int64())})), names)
        return None if row is None else row[0].to_pylist()[0]

    def _words(self, source: LanceSource, name: str) -> dict[str, list[int]]:
        live = self._texts.live(source, name, ANALYZER, np.empty(0, np.uint64))
        flags = live.text.by_document(live.live)
        words = {}
        for word in WORDS:
            documents, _ = live.text.postings(word)
            found = documents[flags[documents]]
            words[word] = sorted(live.text.addresses[found].tolist())
            assert live.document_frequency(word) == len(found)
        return words


def _present(source: LanceSource, run: Any) -> Iterator[tuple[int, list[float]]]:
    flags = held.present(source, run)
    assert flags is not None
    values = np.concatenate(run.vectors.chunks)
    for here, address, vector in zip(flags, run.vectors.addresses, values, strict=True):
        if here:
            yield int(address), vector.tolist()


def fresh(dataset: Any) -> dict[str, object]:
    """The same, as Lance reads it."""
    rows = dataset.scanner(with_row_address=True).to_table().to_pylist()
    rows.sort(key=lambda row: row[ROW_ADDRESS])
    plain = [{name: row[name] for name in row if name != ROW_ADDRESS} for row in rows]
    by_address = dict(zip((row[ROW_ADDRESS] for row in rows), plain, strict=True))
    return {
        "scan": rows,
        "rows": by_address,
        "keys": {row["id"]: row for row in plain},
        "vectors": {address: row["vec"] for address, row in by_address.items()},
        "texts": {
            name: {
                word: [a for a, row in by_address.items() if word in (row[name] or "").split()]
                for word in WORDS
            }
            for name in TEXTS
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_all_that_is_kept_equals_a_fresh_read(tmp_path: Path, seed: int) -> None:
    table, reader = Table(tmp_path, seed), Reader()
    versions, steps = [], []
    for number in range(14):
        versions.append((number, table.dataset))
        # The newest, then an older one again, as while queries move on.
        for what, dataset in {
            number: table.dataset,
            **dict([table.random.choice(versions)]),
        }.items():
            expected, found = fresh(dataset), reader.read(dataset, what)
            for kind, content in expected.items():
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
