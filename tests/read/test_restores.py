"""After Lance's `restore()` a table reads as that version and the generations above its merge
progress, on every path, by open handles and new ones; or it is refused on every path, where some of
these were collected (protocol rule 22)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain.checks.findings import Severity
from tests.model.opened import opened_over
from tests.model.process import as_another_process
from tests.model.writing import flush_rows, session_of

SCHEMA = pa.schema(
    {"id": pa.int64(), "body": pa.string(), "v": pa.list_(pa.float32(), 2), "n": pa.int64()}
)
Content = dict[int, str]
WORDS = "one two three four memory plain"
EVERY = [*range(9), 50, 60, 70]


def rows(ids: Any, word: str) -> pa.Table:
    ids = list(ids)
    vectors = [[float(i), 1.0] for i in ids]
    return pa.table([ids, [word] * len(ids), vectors, ids], schema=SCHEMA)


def content(found: Any) -> Content:
    table = found.read_all() if isinstance(found, pa.RecordBatchReader) else found
    return dict(zip(table["id"].to_pylist(), table["body"].to_pylist(), strict=True))


def sql(table: mw.Table, query: str) -> Content:
    context = session_of("t", table)
    with mw.memwal_errors():
        return content(context.sql(query).to_arrow_table())


# Each gives all live rows, that of unflushed ones too.
PATHS: dict[str, Callable[[mw.Table], Content]] = {
    "scan": lambda table: content(table.scan()),
    "filtered scan": lambda table: content(table.scan(filter="n >= 0")),
    "get": lambda table: content(table.get(list(EVERY))),
    "get one by one": lambda table: {
        key: word for one in EVERY for key, word in content(table.get([one])).items()
    },
    "SQL": lambda table: sql(table, "SELECT id, body FROM t"),
    "SQL lookup": lambda table: sql(
        table, f"SELECT id, body FROM t WHERE id IN ({', '.join(map(str, EVERY))})"
    ),
    "vectors": lambda table: content(table.vector_search("v", [0.0, 1.0], 100)),
    "words": lambda table: content(table.full_text_search("body", WORDS, 100)),
    "hybrid": lambda table: content(
        table.hybrid_search("v", [0.0, 1.0], "body", WORDS, 100, candidates=100)
    ),
    "arrow": lambda table: content(pa.table(table)),
}


class Setting:
    """Generations that were merged one by one, one that is flushed, and rows in memory; and what
    each version of the base table holds, with the merge progress."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "t")
        self.table = mw.create_table(self.uri, SCHEMA, "id", [mw.bucket("id", 2)])
        self.live: Content = {}
        self.versions: dict[str, int] = {"empty": self.version}
        for number, word in enumerate(("one", "two", "three")):
            self.write(range(8 - 2 * number), word)
            self.table.merge()
            self.versions[word] = self.version
        self.write([0, 50], "four")
        self.handle = mw.open_table(self.uri)
        self.writer = self.table.writer()
        self.writer.upsert(rows([1, 60], "memory"))
        self.live.update({1: "memory", 60: "memory"})

    @property
    def version(self) -> int:
        return int(lance.dataset(self.uri).version)

    def write(self, ids: Any, word: str) -> None:
        flush_rows(self.table, rows(ids, word))
        self.live.update(dict.fromkeys(ids, word))

    def restore(self, name: str) -> None:
        lance.dataset(self.uri, version=self.versions[name]).restore()

    def warm(self) -> None:
        """Have the open handle keep what it can."""
        for path in PATHS.values():
            assert path(self.handle) == self.live

    def check_all(self, expected: Content) -> None:
        for handle in (self.handle, mw.open_table(self.uri)):
            for name, path in PATHS.items():
                assert path(handle) == expected, name


@pytest.fixture
def setting(tmp_path: Path) -> Any:
    made = Setting(tmp_path)
    made.warm()
    yield made
    made.writer.close()


@pytest.mark.parametrize("version", ["empty", "two"])
def test_generations_above_the_restored_progress_are_read_again(
    setting: Setting, version: str
) -> None:
    """Nothing was collected: what was merged since is in its generations."""
    setting.restore(version)
    setting.check_all(setting.live)
    assert setting.table.check().ok
    setting.table.merge()
    setting.check_all(setting.live)
    assert setting.table.check().ok
    assert setting.handle.scan(consistency="eventual").read_all().num_rows == len(setting.live) - 1


def test_what_plain_lance_did_since_is_gone_on_every_path(setting: Setting) -> None:
    setting.versions["before"] = setting.version
    dataset = lance.dataset(setting.uri)
    dataset.delete("id = 7")
    lance.write_dataset(rows([70], "plain").cast(dataset.schema), setting.uri, mode="append")
    lance.dataset(setting.uri).update({"body": "'plain'"}, where="id = 6")
    without = {key: word for key, word in setting.live.items() if key != 7}
    setting.check_all({**without, 70: "plain", 6: "plain"})
    setting.restore("before")
    setting.check_all(setting.live)
    setting.table.merge()
    setting.check_all(setting.live)


def test_a_restore_to_other_indexes_changes_no_answer(setting: Setting) -> None:
    setting.table.create_index("v", "IVF_FLAT", num_partitions=1)
    setting.table.create_index("body", "FTS")
    setting.warm()
    setting.restore("three")
    setting.check_all(setting.live)
    assert setting.table.indexes()["name"].to_pylist() == ["id_idx"]
    setting.table.merge()
    setting.check_all(setting.live)


@pytest.mark.parametrize("version", ["empty", "one"])
def test_below_what_was_collected_every_path_is_refused(setting: Setting, version: str) -> None:
    setting.table.collect_garbage(older_than=timedelta(0))
    setting.check_all(setting.live)
    setting.versions["now"] = setting.version
    setting.restore(version)
    said = "was restored to a version that holds generations up to"
    reads = {
        **PATHS,
        "one key": lambda table: content(table.get([7])),
        "manifest": lambda table: content(table.scan(consistency="manifest")),
        "eventual": lambda table: content(table.scan(consistency="eventual")),
        "count": lambda table: table.count_rows(),
        "changes": lambda table: table.changes(),
        "offsets": lambda table: table.change_offsets(),
        "merge": lambda table: table.merge(),
        "checkpoint": lambda table: table.checkpoint("c"),
        "pin": lambda table: table.pin(),
        "writer": lambda table: table.writer(),
        "INSERT": lambda table: sql(table, "INSERT INTO t VALUES (1, 'x', NULL, 1)"),
    }
    for handle in (setting.handle, mw.open_table(setting.uri)):
        for name, read in reads.items():
            with pytest.raises(mw.TableReplacedError, match=said):
                read(handle)
                pytest.fail(name)
        assert handle.regions().num_rows == 2, "to look at what there is"
        report = handle.check()
        assert any(
            one.severity is Severity.ERROR and "were collected" in one.what
            for one in report.findings
        )
    setting.restore("now")
    setting.check_all(setting.live)


def test_a_collection_beside_a_reader_is_no_restore(setting: Setting) -> None:
    """A version that is read for the first time may have been replaced, and its generations
    collected, by then."""
    reader = mw.open_table(setting.uri)
    setting.table.merge()
    setting.table.collect_garbage(older_than=timedelta(0))
    for path in PATHS.values():
        assert path(reader) == setting.live


class BeforeFloors:
    """A store that calls a function before it first lists what was collected."""

    def __init__(self, inner: Any, call: Callable[[], object]) -> None:
        self._inner = inner
        self._calls = [call]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def list(self, path: str) -> Any:
        while self._calls and path.endswith("collected"):
            self._calls.pop()()
        return self._inner.list(path)


def test_a_collection_beside_an_opened_writer_is_no_restore(setting: Setting) -> None:
    """Between its look at the base version and that at the floors."""

    def merge_and_collect() -> None:
        setting.write([70], "later")
        setting.table.merge()
        setting.table.collect_garbage(older_than=timedelta(0))

    calls: list[Callable[[mw.Table], object]] = [
        lambda table: table.writer(),
        lambda table: table.publisher(),
        lambda table: table.statement_writer(table.schema),
    ]
    for call in calls:
        with as_another_process():
            call(opened_over(setting.uri, lambda store: BeforeFloors(store, merge_and_collect)))


def test_a_handle_whose_version_a_tag_keeps_reads_on_after_merges_and_collections(
    tmp_path: Path,
) -> None:
    """The versions after it are cleaned up, and it is not: no probe of the next one finds any."""
    table = mw.create_table(tmp_path / "tagged", pa.schema({"id": pa.int64()}), "id")
    with table.writer() as writer:
        writer.upsert([{"id": 1}])
    table.merge()
    table.tags.create("release", table.snapshot_regions())
    readers: list[Callable[[mw.Table], object]] = [
        lambda one: one.count_rows(),
        lambda one: one.get([1, 2, 3]).num_rows,
        lambda one: one.scan().read_all().num_rows,
    ]
    handles = [mw.open_table(table.uri) for _ in readers]
    for key in (2, 3):
        with table.writer() as writer:
            writer.upsert([{"id": key}])
            writer.flush()
        table.merge()
    table.collect_garbage(older_than=timedelta(0), versions_older_than=timedelta(0))
    for handle, read in zip(handles, readers, strict=True):
        assert read(handle) == 3
