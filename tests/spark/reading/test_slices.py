"""A fragment or a region that is too large for a task is cut, and its tasks read each row once.
Readers are asked here as Spark asks them, without Spark."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.resident.admission import Admission
from tests.soak import SOAK
from tests.spark.reading.test_filter_option import read

SCHEMA = pa.schema({"id": pa.int64(), "word": pa.string(), "number": pa.int32()})
CONDITIONS: list[tuple[str, Callable[[int, str], bool]]] = [
    ("number % 3 = 0", lambda key, word: (key + len(word)) % 3 == 0),
    ("word LIKE 'a%'", lambda key, word: word.startswith("a")),
    ("id >= 40 AND word <> 'b'", lambda key, word: key >= 40 and word != "b"),
    ("match(word, 'aaa')", lambda key, word: word == "aaa"),
    ("id = -1", lambda key, word: False),
]


@pytest.mark.parametrize("seed", range(2 * SOAK))
def test_every_row_is_read_once_however_large_shares_are(
    tmp_path: Path, within: Callable[[AbstractContextManager[Any]], Any], seed: int
) -> None:
    rng = random.Random(seed)
    within(Admission.set(small=rng.choice([-1, Admission.small])))
    regions = [mw.bucket("id", rng.choice([1, 3]))]
    table = mw.create_table(tmp_path / "table", SCHEMA, "id", regions)
    oracle = _written(table, rng)
    with table.writer() as writer:  # the rest stays in the log
        keys = rng.sample(range(120), rng.choice([0, 40]))
        if keys:
            writer.upsert([_row(key, "tail") for key in keys])
            oracle |= dict.fromkeys(keys, "tail")
        condition, meets = rng.choice(CONDITIONS)
        chosen = {key: word for key, word in oracle.items() if meets(key, word)}
        for rows in (rng.randint(15, 60), 400):  # an entry of the log counts as 1,000
            size = {"rowsPerPartition": str(rows)}
            shares, found = read(table.uri, SCHEMA, columns="id,word", **size)
            assert _words(found) == oracle, rows
            assert len(shares) >= len(oracle) // (rows + 1)
            assert _words(read(table.uri, SCHEMA, filter=condition, **size)[1]) == chosen


def test_an_empty_table_has_no_tasks(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "table", SCHEMA, "id")
    for options in ({}, {"rowsPerPartition": "5"}):
        assert read(table.uri, SCHEMA, **options)[0] == []


def test_a_task_reads_its_slice_of_a_fragment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mw.create_table(tmp_path / "table", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert([_row(key, "a") for key in range(1000)])
        writer.flush()
    table.merge()
    scanner, asked = lance.LanceDataset.scanner, []

    def noted(self: Any, *args: Any, **options: Any) -> Any:
        asked.append((options.get("offset") or 0, options.get("limit")))
        return scanner(self, *args, **options)

    monkeypatch.setattr(lance.LanceDataset, "scanner", noted)
    assert read(table.uri, SCHEMA, rowsPerPartition="300")[1].num_rows == 1000
    assert [span for span in asked if span[1] is not None] == [
        (0, 250),
        (250, 250),
        (500, 250),
        (750, 250),
    ]


def _row(key: int, word: str) -> dict[str, Any]:
    return {"id": key, "word": word, "number": key + len(word)}


def _written(table: mw.Table, rng: random.Random) -> dict[int, str]:
    oracle: dict[int, str] = {}
    with table.writer() as writer:
        for word in ("a", "aa", "b", "aaa", "bb"):
            keys = rng.sample(range(120), rng.choice([1, 30, 100]))
            writer.upsert([_row(key, word) for key in keys])
            oracle |= dict.fromkeys(keys, word)
            gone = rng.sample(range(120), rng.choice([0, 10]))
            if gone:
                writer.delete(gone)
            for key in gone:
                oracle.pop(key, None)
            if rng.random() < 0.7:
                writer.flush()
            if rng.random() < 0.5:
                table.merge()
    return oracle


def _words(found: pa.Table) -> dict[int, str]:
    words = {row["id"]: row["word"] for row in found.to_pylist()}
    assert len(words) == found.num_rows, "a key came twice"
    return words
