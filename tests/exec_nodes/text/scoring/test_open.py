"""Whatever a source's texts come from, index files or texts, the ranking is that of one index."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from exec_nodes.base.errors import RepairError
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.lance_index import open_index
from exec_nodes.resident.store import ResidentStore
from exec_nodes.text.scoring import open as source_texts
from tests.exec_nodes.text.sources import (
    QUERIES,
    Oracle,
    Texts,
    base_of,
    base_table,
    body_index,
    indexed,
    merged,
    search,
    snapshot,
    some_texts,
    stored,
)
from tests.model.racing import race
from tests.model.ranking import check_ranking

SMALL_FILES = {"max_rows_per_file": 100}


@pytest.fixture(autouse=True)
def tokenized_fragments(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The fragments that were tokenized because no index covers them."""
    found: list[int] = []
    build = source_texts.Tokenizer.build

    def spied(self: Any, fragments: Any) -> Any:
        found.extend(one.fragment_id for one in fragments)
        return build(self, fragments)

    monkeypatch.setattr(source_texts.Tokenizer, "build", spied)
    return found


def rows_of(texts: Texts) -> pa.Table:
    return stored(list(texts.items())).drop(["_tombstone"])


def check(dataset: Any, live: Texts, parameters: dict[str, Any] | None = None) -> None:
    found = snapshot(base_of(dataset), (), [body_index(parameters)])
    oracle = Oracle(live, parameters)
    for query in QUERIES:
        for k in (1, 10, 1000):
            check_ranking(search(found, query, k), oracle.search(query), k)


def test_texts_count_the_tokenized_rows_that_they_keep_alive(tmp_path: Path) -> None:
    texts = some_texts(Random(1), range(300))
    source = base_of(lance.write_dataset(rows_of(texts), tmp_path / "t"))
    store = ResidentStore(64 << 20)
    opened = source_texts.SourceTexts(store)
    opened.of(source, "body", Analyzer.of({})).at(np.empty(0, np.uint64))
    kinds = store.kinds()
    assert (
        kinds["texts"].bytes
        >= sum(
            run.nbytes
            for key in store.all_keys()
            if key.kind == "tokenized texts"
            for run in store.get(key) or ()
        )
        > 0
    )


def test_an_index_over_all_fragments_is_read_and_nothing_tokenized(
    tmp_path: Path, tokenized_fragments: list[int]
) -> None:
    """On disk and in memory."""
    texts = some_texts(Random(1), range(500))
    check(base_table(tmp_path / "t", texts, {}, **SMALL_FILES).dataset, texts)
    check(indexed(lance.write_dataset(rows_of(texts), f"shared-memory://{uuid4()}"), {}), texts)
    assert tokenized_fragments == []


def test_a_column_without_index_is_tokenized_with_lance_s_default_analyzer(
    tmp_path: Path, tokenized_fragments: list[int]
) -> None:
    texts = some_texts(Random(2), range(250))
    check(base_table(tmp_path / "t", texts, None, **SMALL_FILES).dataset, texts)
    assert set(tokenized_fragments) == {0, 1, 2}


@pytest.mark.parametrize(
    "parameters",
    [{"block_size": 256}, {"format_version": 1}],
    ids=str,
)
def test_index_files_that_do_not_keep_what_is_needed_are_left_alone(
    parameters: dict[str, Any], tmp_path: Path, tokenized_fragments: list[int]
) -> None:
    texts = some_texts(Random(3), range(250))
    dataset = base_table(tmp_path / "t", texts, parameters, **SMALL_FILES).dataset
    assert open_index(dataset, "body", Analyzer.of({}), None, ResidentStore()) is None
    check(dataset, texts)
    assert tokenized_fragments


@pytest.mark.parametrize(
    ("file", "metadata", "columns"),
    [
        ("metadata", {"format_version": "9"}, None),
        ("metadata", {"posting_block_size": "512"}, None),
        ("metadata", {"posting_tail_codec": "zstd_v7"}, None),
        ("metadata", {"token_set_format": "arrow"}, None),
        ("metadata", {"params": "no json"}, None),
        ("metadata", {"params": '{"lance_tokenizer": "music"}'}, None),
        ("metadata", {"partitions": '["a", "b"]'}, None),
        ("metadata", {"partitions": None}, None),
        ("part_0_docs", {}, ["_rowid", "_words"]),
    ],
)
def test_an_index_of_an_unknown_format_is_not_read_but_its_texts(
    file: str,
    metadata: dict[str, str | None],
    columns: list[str] | None,
    tmp_path: Path,
    tokenized_fragments: list[int],
) -> None:
    texts = some_texts(Random(4), range(250))
    dataset = base_table(tmp_path / "t", texts, {}).dataset
    (found,) = (tmp_path / "t").glob(f"_indices/*/{file}.lance")
    rewrite(found, metadata, lambda rows: rows.rename_columns(columns or rows.column_names))
    check(dataset, texts)
    assert tokenized_fragments


def test_damaged_postings_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    texts = some_texts(Random(4), range(250))
    dataset = base_table(tmp_path / "t", texts, {}).dataset
    (file,) = (tmp_path / "t").glob("_indices/*/part_0_invert.lance")
    rewrite(
        file, {}, lambda rows: rows.set_column(2, "_length", [pa.array([99] * len(rows), "uint32")])
    )
    with pytest.raises(RepairError, match=r"part_0_invert\.lance is damaged.*create the full-text"):
        search(snapshot(base_of(dataset), (), [body_index()]), "word0")


@pytest.mark.parametrize("stable", [False, True])
def test_rows_are_counted_where_they_are_whatever_lance_does_to_them(
    stable: bool, tmp_path: Path, tokenized_fragments: list[int]
) -> None:
    """Lance scores appended rows inconsistently through an index that does not cover them (#9058).
    A row may keep its stable id with another text."""
    live = some_texts(Random(5), range(300))
    options = {**SMALL_FILES, "enable_stable_row_ids": stable}
    dataset = base_table(tmp_path / "t", live, {}, **options).dataset

    def now() -> Any:
        return lance.dataset(dataset.uri)

    new = some_texts(Random(6), range(300, 400))
    lance.write_dataset(rows_of(new), now(), mode="append")
    live = merged(live, new)
    check(now(), live)
    assert set(tokenized_fragments) == {3}
    for step in range(2):
        # One more segment, then one more partition.
        now().optimize.optimize_indices(num_indices_to_merge=step)
        tokenized_fragments.clear()
        check(now(), live)
        assert tokenized_fragments == []
        now().delete(f"id % 5 = {step}")
        live = {i: text for i, text in live.items() if i % 5 != step}
        check(now(), live)
        changed = some_texts(Random(8 + step), [i for i in live if i % 7 == 1])
        action = now().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        action.execute(rows_of(changed))
        live = merged(live, changed)
        check(now(), live)
        assert tokenized_fragments
    assert list(Path(dataset.uri).glob("_indices/*/part_1_docs.lance"))
    now().optimize.compact_files(target_rows_per_fragment=250)
    check(now(), live)


def test_of_several_indexes_the_one_with_the_analyzer_is_read(
    tmp_path: Path, tokenized_fragments: list[int]
) -> None:
    texts = {1: "running fast", 2: "run", 3: "the runs"}
    dataset = base_table(tmp_path / "t", texts, {}).dataset
    plain = {"stem": False, "remove_stop_words": False}
    dataset.create_scalar_index("body", "INVERTED", name="a_plain_one", **plain)
    base = base_of(lance.dataset(dataset.uri))
    assert set(search(snapshot(base, (), [body_index()]), "the run")) == {1, 2, 3}
    assert set(search(snapshot(base, (), [body_index(plain)]), "the run")) == {2, 3}
    assert tokenized_fragments == []
    assert set(search(snapshot(base, (), [body_index({"stem": False})]), "the run")) == {2}
    assert tokenized_fragments == [0]


def rewrite(
    file: Path,
    metadata: dict[str, str | None],
    change: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> None:
    """Put other metadata (None: none) or other rows into a file of an index."""
    reader = LanceFileReader(str(file))
    rows = change(reader.read_all().to_table()).replace_schema_metadata(None)
    kept = {k.decode(): v.decode() for k, v in (reader.metadata().schema.metadata or {}).items()}
    file.unlink()
    with LanceFileWriter(str(file), rows.schema) as writer:
        for name, value in {**kept, **metadata}.items():
            if value is not None:
                writer.add_schema_metadata(name, value)
        writer.write_batch(rows)


TOKENS = [f"word{number}" for number in range(400)]


def test_threads_read_posting_lists_at_once(tmp_path: Path) -> None:
    texts = [f"{token} every" for token in TOKENS]
    dataset = lance.write_dataset(pa.table({"body": texts}), tmp_path / "t")
    dataset.create_scalar_index("body", "INVERTED")
    analyzer = Analyzer.of({})
    for _ in range(2):
        segments = open_index(
            lance.dataset(tmp_path / "t"), "body", analyzer, None, ResidentStore()
        )
        assert segments is not None
        (partition,) = segments[0].partitions

        def read(first: int, partition: object = partition) -> int:
            found = map(partition.postings, TOKENS[first::8])  # type: ignore[attr-defined]
            return sum(postings is not None for postings in found)

        assert race(*(partial(read, first) for first in range(8))) == [50] * 8
