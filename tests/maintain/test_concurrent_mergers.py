"""Several mergers at once (specification 2, appendix 2; protocol rules 19 and 20)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import ConflictError
from memwal_sql.maintain.lease import Patience
from memwal_sql.maintain.merge import commit as passes
from memwal_sql.maintain.merge.merger import Merger
from memwal_sql.storage.base.memwal_index import commit_details
from tests.maintain.merging_tables import (
    GENERATIONS,
    expected,
    in_base,
    make_table,
    merger_of,
    progress_of,
    rows_of,
    write_generations,
)
from tests.model.merging import details_of, manifests
from tests.model.racing import race
from tests.model.waiting import eventually, reached
from tests.soak import usual

SMALL_PASS = 16_000
NO_DELETES = [(dict.fromkeys(range(3000), n), []) for n in range(1, 4)]
MANY = [(dict.fromkeys(range(3000), n), [n, n + 10]) for n in range(1, 4)]


class Sleeper:
    """A merger in a thread of its own that falls asleep right before one of its commits."""

    def __init__(self, within: Any, merge: Callable[[], int], before_pass: int = 1) -> None:
        within(Patience.set(seconds=0.05))
        self._asleep, self._wake = threading.Event(), threading.Event()
        self._passes = 0
        self._before_pass = before_pass
        self.outcome: Any = None
        execute = passes.PassWriter._execute

        def sleepy(writer: passes.PassWriter, *args: Any, **kwargs: Any) -> Any:
            if threading.current_thread() is self._thread:
                self._passes += 1
                if self._passes == self._before_pass:
                    self._asleep.set()
                    reached(self._wake)
            return execute(writer, *args, **kwargs)

        def run() -> None:
            try:
                self.outcome = merge()
            except BaseException as error:
                self.outcome = error

        self._thread = threading.Thread(target=run)
        within(patch.object(passes.PassWriter, "_execute", sleepy))
        self._thread.start()
        eventually(lambda: self._asleep.is_set() or self.outcome is not None)
        assert self._asleep.is_set(), self.outcome

    def wake(self) -> Any:
        """Let it go on; what it returned or raised."""
        self._wake.set()
        self._thread.join()
        return self.outcome


def _opened(table: mw.Table) -> mw.Table:
    """The table as another process sees it."""
    return mw.open_table(table.uri)


def _one_step(merger: Merger, last: Any, step: Any = Merger._step) -> bool:
    step(merger, last)
    return True


def test_racing_on_the_same_generation(tmp_path: Path, within: Any) -> None:
    """Appendix 2, scenario 1: B reads merged 5, A commits 6, B's commit of 6 is refused, B reads
    the index again, sees 6, and goes on with 7."""
    table = make_table(tmp_path, [({n: n}, []) for n in range(5)])
    assert table.merge() == 5
    write_generations(table, [({5: 5, 1: 50}, []), ({6: 6}, [1])])
    (region,) = manifests(table.uri)
    b = Sleeper(within, _opened(table).merge)  # read 5, is about to commit 6
    with patch.object(Merger, "_step", _one_step):
        assert _opened(table).merge() == 1
    assert progress_of(table.uri) == {str(region): 6}
    after_a = lance.dataset(table.uri).version
    assert b.wake() == 1  # generation 7
    assert progress_of(table.uri) == {str(region): 7}
    assert in_base(table.uri, after_a) == {0: 0, 1: 50, 2: 2, 3: 3, 4: 4, 5: 5}
    assert in_base(table.uri) == {0: 0, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}


def test_crash_after_the_commit(tmp_path: Path) -> None:
    """Appendix 2, scenario 2: A commits 6 and dies; B reads merged 6, skips it and merges 7."""
    table = make_table(tmp_path, [({n: n}, []) for n in range(5)])
    assert table.merge() == 5
    write_generations(table, [({5: 5}, []), ({6: 6}, [99])])  # not merged together
    (region,) = manifests(table.uri)

    def die(progress: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _opened(table).merge(progress=die)
    assert progress_of(table.uri) == {str(region): 6}
    assert _opened(table).merge() == 1
    assert progress_of(table.uri) == {str(region): 7}
    assert in_base(table.uri) == {n: n for n in range(7)}


@pytest.mark.parametrize("others_small", [False, True], ids=["others at once", "others in passes"])
@pytest.mark.parametrize(
    ("generations", "small", "before_pass"),
    usual([*product([MANY, NO_DELETES], [False, True], [1, 2, 3])], 5),
)
def test_a_merger_that_slept_changes_nothing(
    tmp_path: Path,
    within: Any,
    before_pass: int,
    small: bool,
    others_small: bool,
    generations: list[tuple[dict[int, int], list[int]]],
) -> None:
    """Protocol rule 20: an unmarked pass would roll the base table back, and so would a marked one
    after others merged the generation in one commit that is not."""
    if generations is NO_DELETES and not small:
        before_pass = 1  # there is one
    table = make_table(tmp_path, generations)
    sizes = {True: SMALL_PASS, False: 10**9}
    sleeper = Sleeper(within, merger_of(_opened(table), sizes[small]), before_pass)
    others = merger_of(_opened(table), sizes[others_small])()
    assert 1 <= others <= 3
    before = in_base(table.uri)
    assert before == expected(generations)
    version = lance.dataset(table.uri).version
    assert sleeper.wake() + others == 3
    assert in_base(table.uri) == expected(generations)
    assert lance.dataset(table.uri).version <= version + 1  # its record of the regions
    assert rows_of(_opened(table)) == expected(generations)


@pytest.mark.parametrize(
    "generations",
    [
        [({0: 1, 1: 1}, []), ({0: 3}, [])],
        [({5: 5}, []), ({}, [5])],
        [({5: 5}, []), ({5: 6}, [])],
        [({}, [1]), ({1: 9}, [])],
    ],
    ids=["replaced", "inserted, then deleted", "inserted, then replaced", "deleted, then inserted"],
)
def test_a_merger_that_slept_is_refused_also_where_the_progress_was_erased(
    tmp_path: Path, generations: list[tuple[dict[int, int], list[int]]]
) -> None:
    """Protocol rules 19 and 20: an index commit from an older version has erased the marks that it
    would be refused by. If Lance tried again by itself, over the version of now, it would not."""
    table = make_table(tmp_path, [({0: 0, 1: 0, 2: 0}, [])])
    table.merge()
    write_generations(table, generations)
    (region,) = manifests(table.uri)
    asleep, older = lance.dataset(table.uri), lance.dataset(table.uri)
    before_merge = details_of(table.uri, older)
    with patch.object(Merger, "_record", lambda *_: None):
        assert _opened(table).merge() == 2
    commit_details(older, before_merge)
    assert progress_of(table.uri) == {str(region): 1}
    version, before = lance.dataset(table.uri).version, in_base(table.uri)
    writer = passes.PassWriter(asleep, ["id"], {region: [2]}, {})
    ((upserts, deletes), _) = generations
    columns = {"id": deletes} if deletes else {"id": [*upserts], "val": [*upserts.values()]}
    rows = pa.table(columns, pa.schema([asleep.schema.field(name) for name in columns]))
    with pytest.raises(ConflictError):
        (writer.delete if deletes else writer.upsert)(rows, last=True)
    assert lance.dataset(table.uri).version == version
    assert in_base(table.uri) == before


def test_mergers_of_different_regions_do_not_disturb_each_other(
    tmp_path: Path, within: Any
) -> None:
    table = make_table(tmp_path, MANY, regions=[mw.bucket("id", 2)])
    other = _opened(table)
    sleeper = Sleeper(within, lambda: _opened(table).merge(regions=["id_bucket=0"]))
    assert other.merge(regions=["id_bucket=1"]) == 3
    assert sleeper.wake() == 3
    assert in_base(table.uri) == expected(MANY)


def test_many_mergers_at_once_merge_everything_once(tmp_path: Path) -> None:
    table = make_table(tmp_path, MANY, regions=[mw.bucket("id", 2)])
    assert sum(race(*(_opened(table).merge for _ in range(4)))) == 6
    assert in_base(table.uri) == expected(MANY)


@pytest.mark.parametrize("kind", ["append", "delete", "compact", "update"])
def test_other_commits_in_between_are_merged_over(tmp_path: Path, within: Any, kind: str) -> None:
    table = make_table(tmp_path, GENERATIONS[:1])
    table.merge()
    write_generations(table, GENERATIONS[1:])
    sleeper = Sleeper(within, _opened(table).merge)
    dataset = lance.dataset(table.uri)
    match kind:
        case "append":
            row = pa.table({"id": [99], "val": [9]}, dataset.schema)
            lance.write_dataset(row, table.uri, mode="append")
        case "delete":
            dataset.delete("id = 1")
        case "compact":
            dataset.optimize.compact_files()
        case "update":
            dataset.update({"val": "100"}, where="id = 3")
    assert sleeper.wake() == 2
    rows = expected()
    if kind == "append":
        rows[99] = 9
    if kind == "update":
        rows[3] = 100
    assert in_base(table.uri) == rows == rows_of(_opened(table))


def test_an_overwrite_in_between_is_an_error_that_names_it(tmp_path: Path, within: Any) -> None:
    """Protocol rule 22."""
    table = make_table(tmp_path)
    sleeper = Sleeper(within, _opened(table).merge)
    rows = lance.dataset(table.uri).schema.empty_table().select(["id", "val"])
    lance.write_dataset(rows, table.uri, mode="overwrite")
    outcome = sleeper.wake()
    assert isinstance(outcome, mw.TableReplacedError), outcome
    assert in_base(table.uri) == {}
