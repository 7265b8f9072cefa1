"""Where Rust code of Lance panics on a damaged file, callers get CorruptFileError: a panic is no
`Exception`, and would pass every handler of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import pytest
from lance.dataset import DatasetOptimizer, MergeInsertBuilder, Tags

import memwal_sql as mw
from memwal_sql.bulk import read as staged_read
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StageLimits
from memwal_sql.errors import CorruptFileError
from memwal_sql.maintain.checks.findings import Severity
from tests.model.small_rows import make_rows
from tests.model.writing import flush_rows


class PanicException(BaseException):
    """Of the name that pyo3 gives its own, which nobody can make."""


def _panic(*_: Any, **__: Any) -> Any:
    raise PanicException("called `Option::unwrap()` on a `None` value")


USES: dict[str, tuple[Any, str, Callable[[Any], object]]] = {
    "open": (lance, "dataset", lambda table: mw.open_table(table.uri)),
    "enable": (lance, "dataset", lambda table: mw.enable(table.uri, primary_key="id")),
    "merge": (MergeInsertBuilder, "execute", lambda table: table.merge()),
    "build": (DatasetOptimizer, "optimize_indices", lambda table: table.build_indexes()),
    "create index": (
        lance.LanceDataset,
        "create_scalar_index",
        lambda table: table.create_index("text", "FTS"),
    ),
    "drop index": (
        lance.LanceDataset,
        "drop_index",
        lambda table: table.drop_index("text_idx"),
    ),
    "commit details": (lance.LanceDataset, "commit", lambda table: table.snapshot_regions()),
    "checkpoint": (Tags, "create", lambda table: table.checkpoint("c")),
    "gc": (Tags, "list", lambda table: table.collect_garbage()),
}


@pytest.mark.parametrize("use", sorted(USES))
def test_a_panic_of_lance_is_a_corrupt_file(
    table: Any, use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.writer() as writer:
        writer.upsert(make_rows(1, 10))
        writer.flush()
        if use in ("drop index", "build"):
            table.merge()
            table.create_index("text", "FTS")
            writer.upsert(make_rows(20, 21))
            writer.flush()
            table.merge()
            writer.upsert(make_rows(30))
    owner, name, call = USES[use]
    monkeypatch.setattr(owner, name, _panic)
    with pytest.raises(CorruptFileError, match=r"is damaged, see table\.check\(\)"):
        call(table)


def test_a_panic_on_staged_files_is_a_corrupt_file(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stager = table.stager("job", RowForm(), StageLimits(generation=1))
    staged = stager.stage(make_rows(70, 71).to_batches())
    monkeypatch.setattr(staged_read.lance, "dataset", _panic)
    with pytest.raises(CorruptFileError, match="damaged"):
        table.publisher().publish([staged])


def test_check_tells_of_a_panic_and_goes_on(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    flush_rows(table, make_rows(1, 10))
    monkeypatch.setattr(Tags, "list", _panic)
    report = table.check()
    (found,) = report.of(Severity.ERROR)
    assert (found.check, found.where) == ("checkpoints", "_refs/tags")
