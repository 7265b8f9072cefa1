"""A merge whose work tasks share leaves the rows of one in one process (protocol rule 20)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import ConflictError
from memwal_sql.maintain.lease import Patience
from memwal_sql.maintain.merge.commit import PassWriter, TooLargeError
from memwal_sql.maintain.merge.shares import MergedShare, MergeShare, ShareRows
from memwal_sql.storage.base.memwal_index import commit_details, read_details_at
from memwal_sql.storage.base.merge_token import LAST_PASS, pass_shard, token
from memwal_sql.storage.objects.open import open_store
from tests.each import each
from tests.maintain.merging_tables import (
    SCHEMA,
    as_rows,
    expected,
    in_base,
    make_table,
    merger_of,
    progress_of,
    rows_of,
    write_generations,
)
from tests.model.merging import details_of, manifests, merged_generations
from tests.soak import IS_SOAK, SOAK

Step = Callable[[], object]
TEXT_KEYS = pa.schema([("id", pa.string()), ("val", pa.int64())])
SMALL_PASS = 8_000
MANY: list[tuple[dict[int, int], list[int]]] = [
    (dict.fromkeys(range(1100), 1), []),
    (dict.fromkeys(range(1100), 2), [2, 12]),
    (dict.fromkeys(range(1100), 3), [3, 13]),
]


@pytest.fixture(autouse=True)
def small(within: Any) -> None:
    within(ShareRows.set(least=1))
    within(Patience.set(seconds=0.05))


class Tasks:
    """Does the work of tasks in this process; everything is pickled as for another one."""

    def __init__(self, table: mw.Table, before: Step = lambda: None, tasks: int = 3) -> None:
        self.table = table
        self.before = before
        self.tasks = tasks
        self.done: list[MergedShare] = []
        self.runs = 0

    def __call__(self, shares: Sequence[MergeShare]) -> list[MergedShare]:
        self.runs += 1
        if self.runs == 1:
            self.before()
        self._one(shares[-1])  # a task that runs again
        self.done = [self._one(share) for share in shares]
        return self.done

    def _one(self, share: MergeShare) -> MergedShare:
        sent = pickle.loads(pickle.dumps(share))
        result: MergedShare = mw.open_table(self.table.uri).merge_share(sent)
        return pickle.loads(pickle.dumps(result))

    def merge(self) -> int:
        return sum(self.table.merge_in_tasks(self, self.tasks).values())


def random_table(folder: Path, rng: Random) -> tuple[mw.Table, Any]:
    """Rows in some fragments of the base, some of them deleted or repeated by plain Lance, and in
    generations; what makes a key."""
    is_text = rng.random() < 0.5
    key: Callable[[int], Any] = (lambda n: f"key {n}") if is_text else (lambda n: n)
    regions = rng.choice([None, [mw.bucket("id", 3)]])
    table = mw.create_table(folder / "t", TEXT_KEYS if is_text else SCHEMA, "id", regions)

    def write(count: int) -> None:
        for _ in range(count):
            upserts = {
                key(n): rng.randrange(100) for n in rng.sample(range(40), rng.randint(1, 20))
            }
            deletes = [key(n) for n in rng.sample(range(50), rng.randint(0, 5))]
            write_generations(table, [(upserts, deletes)])

    for _ in range(rng.randint(0, 3)):
        write(1)
        table.merge()
    if rng.random() < 0.5:
        rows = pa.table({"id": [key(3), key(3)], "val": [7, 7]}, lance.dataset(table.uri).schema)
        lance.write_dataset(rows, table.uri, mode="append")
        write_generations(table, [({key(3): 8}, [])])
    if rng.random() < 0.5:
        table.create_index("val", "BTREE")
    write(rng.randint(1, 4))
    if rng.random() < 0.3:
        table.add_columns(pa.field("new", pa.int64()))
        write(1)
    return table, key


@pytest.mark.parametrize("seed", range(4 * SOAK))
def test_a_shared_merge_leaves_what_a_merge_leaves(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    table, key = random_table(tmp_path, rng)
    other = mw.open_table(copytree(table.uri, tmp_path / "copy"))
    merged, first = other.merge(), lance.dataset(table.uri).version
    tasks = Tasks(table, tasks=rng.randint(1, 5))
    assert tasks.merge() == merged
    rows = in_base(other.uri)
    assert in_base(table.uri) == rows == rows_of(table)
    assert progress_of(table.uri) == progress_of(other.uri)
    table = mw.open_table(table.uri)
    assert table.check().ok
    for low in (0, 50, 90):
        kept = {k: val for k, val in rows.items() if val >= low}
        assert as_rows(table.scan(filter=f"val >= {low}").read_all()) == kept
    store = open_store(table.uri)
    for version in range(first + 1, lance.dataset(table.uri).version + 1):
        before, after = (read_details_at(store, number) for number in (version - 1, version))
        assert before is not None and after is not None and after.has_same_rows_as(before)
        assert rows_of(mw.open_table(table.uri, version=version)) == rows
    version = lance.dataset(table.uri).version
    assert tasks.merge() == 0 and lance.dataset(table.uri).version == version
    write_generations(table, [({key(1): -1}, [key(2)])])
    write_generations(table, [({key(2): -2}, [])])
    table.merge()
    assert in_base(table.uri) == rows | {key(1): -1, key(2): -2}


def test_the_work_of_a_task_falls_with_their_number(tmp_path: Path) -> None:
    generations = [(dict.fromkeys(range(n, n + 1000), n), [n + 1001]) for n in range(0, 3000, 500)]
    table = make_table(tmp_path, generations)
    rows = pa.table({"id": range(10_000, 16_000), "val": range(6000)}, SCHEMA)
    rows = rows.cast(lance.dataset(table.uri).schema)
    lance.write_dataset(rows, table.uri, mode="append", max_rows_per_file=500)
    most = []
    for tasks in (1, 2, 4):
        copy = mw.open_table(copytree(table.uri, tmp_path / str(tasks)))
        run = Tasks(copy, tasks=tasks)
        assert run.merge() == 6
        work = [
            (sum(fragment.physical_rows for fragment in share.new), share.compared)
            for share in run.done
        ]
        assert [sum(rows) for rows in zip(*work, strict=True)] == [3500, 6000]
        most.append([max(rows) for rows in zip(*work, strict=True)])
        assert len(in_base(copy.uri)) == 9500
    assert most == [[3500, 6000], [1750, 3000], [875, 1500]]


def merge_a_part(table: mw.Table, *, erased: bool = False) -> Step:
    """Another merger, which dies after its second pass: with `erased`, an index commit from the
    version before the first one has erased its marks."""

    def passes() -> None:
        merge, before = PassWriter._execute, list[Any]()

        def dies(writer: PassWriter, *args: Any, **kwargs: Any) -> Any:
            if len(before) == 2:
                raise KeyboardInterrupt
            before.append(lance.dataset(table.uri))
            return merge(writer, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(PassWriter, "_execute", dies)
            merger_of(mw.open_table(table.uri), SMALL_PASS)()
        if erased:
            marks = merged_generations(table.uri)
            commit_details(before[0], details_of(table.uri, before[0]))
            assert merged_generations(table.uri) != marks

    return passes


OTHERS: dict[str, Callable[[mw.Table], Step]] = {
    "merges all": lambda table: mw.open_table(table.uri).merge,
    "merges all in tasks": lambda table: Tasks(mw.open_table(table.uri)).merge,
    "merges a part": merge_a_part,
    "merges a part, erased": partial(merge_a_part, erased=True),
    "compacts": lambda table: mw.open_table(table.uri).compact,
    "builds an index": lambda table: lambda: table.create_index("val", "BTREE"),
    "records the regions": lambda table: mw.open_table(table.uri).snapshot_regions,
    "adds a column": lambda table: lambda: table.add_columns(pa.field("new", pa.int64())),
    "writes": lambda table: lambda: write_generations(table, [({1: 77, 9999: 1}, [5])]),
    "appends": lambda table: (
        lambda: lance.write_dataset(
            pa.table({"id": [-1], "val": [9]}, lance.dataset(table.uri).schema),
            table.uri,
            mode="append",
        )
    ),
}


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of two fragments with generations to merge, to be copied."""
    table = make_table(
        tmp_path_factory.mktemp("waiting"), [({-2: 0, **dict.fromkeys(range(600), 0)}, [])]
    )
    table.merge()
    write_generations(table, [(dict.fromkeys(range(4000, 4100), 0), [])])
    table.merge()
    write_generations(table, MANY)
    return table.uri


def waiting_rows() -> dict[int, int]:
    return {-2: 0, **dict.fromkeys(range(4000, 4100), 0)} | expected(MANY)


def die() -> None:
    raise KeyboardInterrupt


COMMITS = (("mark", 1), ("replace", 1), ("mark", 2))
"""The commits of a shared merge."""


@contextmanager
def before_commit(name: str, number: int, step: Step) -> Iterator[None]:
    """Let `step` run before this method is called for this time."""
    commit, left = getattr(PassWriter, name), [number]

    def late(writer: PassWriter, *args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            try:
                step()
            except ConflictError as error:  # it is not the writer that is refused
                raise AssertionError from error
        return commit(writer, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PassWriter, name, late)
        yield
    assert left[0] <= 0


# Who merges does so before each commit of the last two. All else is done before one of them, and
# in a soak before both.
BETWEEN = [
    *product(COMMITS[:1], ("merges all", "merges a part")),
    *(
        (commit, name)
        for place, name in enumerate(OTHERS)
        for turn, commit in enumerate(COMMITS[1:])
        if name.startswith("merges") or IS_SOAK or (place + turn) % 2
    ),
]


@each("commit, name", BETWEEN)
def test_whatever_others_commit_in_between_stays(
    tmp_path: Path, waiting: str, commit: tuple[str, int], name: str
) -> None:
    """Protocol rules 19 and 20: the one that comes too late is refused, and merges again."""
    table = mw.open_table(copytree(waiting, tmp_path / "t"))
    with before_commit(*commit, OTHERS[name](table)):
        Tasks(mw.open_table(table.uri)).merge()
    rows = waiting_rows() | ({-1: 9} if name == "appends" else {})
    assert in_base(table.uri) == rows
    if name == "writes":
        rows = {key: val for key, val in rows.items() if key != 5} | {1: 77, 9999: 1}
    table = mw.open_table(table.uri)
    assert rows_of(table) == rows
    table.merge()
    assert in_base(table.uri) == rows_of(table) == rows and table.check().ok


@each("commit, in_tasks", product([None, *COMMITS], [True, False]))
def test_a_shared_merge_that_dies_has_changed_no_row(
    tmp_path: Path, waiting: str, commit: tuple[str, int] | None, in_tasks: bool
) -> None:
    """Its driver or a task; protocol rule 20: a version with a part is read with the whole."""

    table = mw.open_table(copytree(waiting, tmp_path / "t"))
    first = lance.dataset(table.uri).version + 1  # which records the regions
    with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
        if commit is not None:
            stack.enter_context(before_commit(*commit, die))
        Tasks(mw.open_table(table.uri), die if commit is None else lambda: None).merge()
    rows = waiting_rows()
    marks, (region,) = merged_generations(table.uri), manifests(table.uri)
    begun = commit != COMMITS[0]
    assert marks.get(pass_shard(region)) == token(3 if begun else 2, 1 if begun else LAST_PASS)
    for consistency in ("strong", "eventual"):
        assert rows_of(mw.open_table(table.uri), consistency) == rows
    for version in range(first, lance.dataset(table.uri).version + 1):
        assert rows_of(mw.open_table(table.uri, version=version)) == rows
    table = mw.open_table(table.uri)
    assert table.check().ok
    assert (Tasks(table).merge if in_tasks else table.merge)() == len(MANY)
    assert in_base(table.uri) == rows_of(table) == rows


def test_the_merge_after_one_that_died_first_commits_what_refuses_that_one(
    tmp_path: Path, waiting: str
) -> None:
    """Protocol rule 20: the same rows. It goes on from there, and records the regions once."""
    table = mw.open_table(copytree(waiting, tmp_path / "t"))
    table.merge()
    write_generations(table, [({1: 7}, [])])
    with pytest.raises(KeyboardInterrupt), before_commit("mark", 2, die):
        Tasks(table).merge()
    write_generations(table, [({2: 7}, [])])
    first = lance.dataset(table.uri).version
    assert table.merge() == 2
    dataset = lance.dataset(table.uri)
    commits = map(dataset.read_transaction, range(first + 1, dataset.version + 1))
    operations = [type(commit.operation).__name__ for commit in commits]
    assert operations == ["Merge", "Update", "CreateIndex"]
    before, after = (lance.dataset(table.uri, version=first + n).get_fragments() for n in (0, 1))
    assert [fragment.metadata for fragment in before] == [fragment.metadata for fragment in after]


def test_a_merge_in_tasks_without_rows_refuses_mergers_that_slept(tmp_path: Path) -> None:
    """Protocol rule 20: a row that is deleted by now must not come, had an index commit erased
    the mark that came with it."""
    table = make_table(tmp_path, [({0: 0}, [])])
    table.merge()
    write_generations(table, [({1: 1}, []), ({}, [1])])
    (region,), asleep = manifests(table.uri), lance.dataset(table.uri)
    rows = pa.table({"id": [1], "val": [1]}, asleep.schema)
    writer = PassWriter(asleep, ["id"], {region: [2]}, merged_generations(table.uri))

    def wakes() -> None:
        with pytest.raises(ConflictError):
            writer.upsert(rows, last=True)

    with before_commit("mark", 2, wakes):
        Tasks(table).merge()
    assert in_base(table.uri) == {0: 0}


def test_a_shared_merge_ends_where_lance_has_no_memory_for_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(tmp_path)
    rows = rows_of(table)

    def exhausted(*_: Any, **__: Any) -> Any:
        raise TooLargeError("Resources exhausted")

    with monkeypatch.context() as patch:
        patch.setattr(PassWriter, "_execute", exhausted)
        with pytest.raises(mw.RetryError, match="LANCE_MEM_POOL_SIZE"):
            Tasks(table).merge()
    Tasks(table).merge()
    assert in_base(table.uri) == rows_of(table) == rows
