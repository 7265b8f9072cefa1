"""Random histories of LanceDB and us at one table, against a dict: who writes, flushes, merges,
indexes, records and collects is drawn; both read what both have written."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lancedb._lancedb import LsmWriteSpec

import memwal_sql as mw
from tests.interop.lancedb_client import (
    Rows,
    by_key,
    create,
    folder,
    made_by_us,
    open_handle,
    rows,
)
from tests.model.merging import manifests
from tests.model.process import as_another_process
from tests.soak import SOAK

KEYS = 10
STEPS = 32
# How many regions a table may come to.
MADE = {
    "unsharded, theirs": (lambda path: create(path, LsmWriteSpec.unsharded(), {1: "base"}), 1),
    "buckets, theirs": (lambda path: create(path, LsmWriteSpec.bucket("id", 3), {1: "base"}), 3),
    "identity, theirs": (lambda path: create(path, LsmWriteSpec.identity("id"), {1: "base"}), KEYS),
    "unsharded, ours": (lambda path: made_by_us(path, mw.unsharded()), 1),
    "buckets, ours": (lambda path: made_by_us(path, mw.lance_bucket("id", 3)), 3),
}
STEP_WEIGHTS = {
    "their upsert": 12,
    "our upsert": 10,
    "our delete": 4,
    "their close": 3,
    "their new handle": 2,
    "our flush": 6,
    "our new writer": 2,
    "merge": 9,
    "index": 1,
    "compact": 2,
    "snapshot": 1,
    "collect": 3,
    "both read": 2,
}


class History:
    """One table, a handle of LanceDB and a writer of ours."""

    def __init__(self, path: Path, kind: str, seed: str) -> None:
        make, self.most_regions = MADE[kind]
        make(path)
        self.path, self.seed, self.rng = path, seed, Random(seed)
        self.expected: Rows = {1: "base"} if "theirs" in kind else {}
        self.table: Any = mw.open_table(folder(path))
        self.handle = open_handle(path)
        self.writer: Any = self.table.writer(turns=False)
        self.number = 0
        self.fenced = {"ours": 0, "theirs": 0}

    def run(self) -> None:
        for _ in range(STEPS):
            (step,) = self.rng.choices(list(STEP_WEIGHTS), list(STEP_WEIGHTS.values()))
            getattr(self, step.replace(" ", "_"))()
            assert by_key(self.table.scan().read_all()) == self.expected, step
        self.both_read()
        assert len(manifests(self.table.uri)) <= self.most_regions
        assert self.table.check().ok
        with suppress(mw.FencedError):
            self.writer.close()

    def _value(self, who: str) -> str:
        self.number += 1
        return f"{who} {self.number}"

    def _ours(self, call: Any) -> None:
        try:
            call()
        except mw.FencedError:
            self.fenced["ours"] += 1
            self.our_new_writer()
            call()

    def their_upsert(self) -> None:
        key, value = self.rng.randrange(KEYS), self._value("theirs")
        for _ in range(3):
            try:
                self.handle.upsert({key: value})
            except (RuntimeError, ValueError) as error:  # fenced, or another region is open
                self.fenced["theirs"] += "fenced" in str(error)
                self.their_close()
            else:
                self.expected[key] = value
                return
        raise AssertionError("LanceDB does not get the region back")

    def our_upsert(self) -> None:
        keys = self.rng.sample(range(KEYS), self.rng.randint(2, 6))
        values = {key: self._value("ours") for key in keys}
        self._ours(lambda: self.writer.upsert(rows(values)))
        self.expected.update(values)

    def our_delete(self) -> None:
        keys = self.rng.sample(range(KEYS), 2)
        self._ours(lambda: self.writer.delete(keys))
        for key in keys:
            self.expected.pop(key, None)

    def their_close(self) -> None:
        with suppress(RuntimeError):  # it was fenced
            self.handle.close()

    def their_new_handle(self) -> None:
        self.their_close()
        self.handle = open_handle(self.path)

    def our_flush(self) -> None:
        # A writer that was fenced has nothing of its own that others do not have.
        with suppress(mw.FencedError):
            self.writer.flush()

    def our_new_writer(self) -> None:
        with suppress(mw.FencedError):
            self.writer.close()
        self.table = mw.open_table(self.table.uri)
        self.writer = self.table.writer(turns=False)

    def merge(self) -> None:
        self.table.merge()

    def index(self) -> None:
        self.table.build_indexes()

    def compact(self) -> None:
        self.table.compact(fragments=self.rng.choice((None, 2)))

    def snapshot(self) -> None:
        self.table.snapshot_regions()

    def collect(self) -> None:
        self.table.collect_garbage(older_than=timedelta(0))

    def both_read(self) -> None:
        """LanceDB sees what is flushed: so flush what every log holds."""
        self.table.publisher().empty_wals(list(manifests(self.table.uri).values()))
        assert open_handle(self.path).read() == self.expected
        found = by_key(self.table.get(list(range(KEYS))))
        assert found == self.expected
        with as_another_process():
            other = mw.open_table(self.table.uri)
            assert by_key(other.scan(consistency="manifest").read_all()) == self.expected


@pytest.mark.parametrize("kind", MADE)
def test_both_read_what_both_have_written(kind: str, tmp_path: Path) -> None:
    for number in range(SOAK):
        history = History(tmp_path / str(number), kind, seed=f"{kind} {number}")
        try:
            history.run()
        except BaseException as error:
            error.add_note(f"seed {history.seed!r}")
            raise
        assert sum(history.fenced.values()) > 0, history.seed
