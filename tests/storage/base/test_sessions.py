"""What Lance keeps of files that are gone is bounded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.storage.base.sessions import BaseSession, SessionChecks, new_session
from tests.each import each

MEGABYTE = 1024 * 1024


@dataclass
class FakeSession:
    held: int

    def size_bytes(self) -> int:
        return self.held


def replace_versions(base: BaseSession, count: int = SessionChecks.versions) -> None:
    for _ in range(count):
        base.replaced()


@each(
    "needed, held, versions, is_new",
    [
        (10, 83, SessionChecks.versions, False),
        (10, 85, SessionChecks.versions - 1, False),
        (10, 85, SessionChecks.versions, True),
        # Two thirds of what it takes to begin anew would have been left behind by merges.
        (4000, 8000, 10 * SessionChecks.versions, False),
    ],
)
def test_a_new_session_begins_when_most_of_what_one_holds_is_of_versions_that_are_gone(
    needed: int, held: int, versions: int, is_new: bool
) -> None:
    first = FakeSession(needed * MEGABYTE)
    base = BaseSession(first)
    replace_versions(base)
    first.held = held * MEGABYTE
    replace_versions(base, versions)
    assert (base.session is not first) is is_new
    if is_new:  # which is measured by its own first versions
        second = base.session
        assert second.size_bytes() < MEGABYTE
        replace_versions(base, 3 * SessionChecks.versions)
        assert base.session is second


@pytest.mark.slow
def test_versions_that_are_found_later_are_read_in_the_new_session(
    tmp_path: Path, within: Any
) -> None:
    within(SessionChecks.set(versions=1, left_behind_bytes=0))
    schema = pa.schema({"id": pa.int64(), "v": pa.list_(pa.float32(), 4)})
    table = mw.create_table(tmp_path / "t", schema, "id")
    vectors = pa.array(
        np.random.default_rng(1).random((300, 4), np.float32).tolist(), schema[1].type
    )
    seen, rows = [], {"id": range(300), "v": vectors}
    reader = mw.open_table(table.uri)
    with table.writer() as writer:
        for _ in range(8):
            writer.upsert(pa.table(rows, schema))
            writer.flush()
            table.merge()
            assert reader.scan().read_all().num_rows == 300
            seen.append(reader.tracker.loaded.dataset.session())
    assert any(not one.is_same_as(seen[0]) for one in seen)


def test_sessions_share_nothing_but_connections(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": range(10)}), tmp_path / "t")
    one, other = new_session(), new_session()
    assert lance.dataset(tmp_path / "t", session=one).to_table().num_rows == 10
    assert one.size_bytes() > other.size_bytes() == new_session().size_bytes()
    assert not one.is_same_as(other)
