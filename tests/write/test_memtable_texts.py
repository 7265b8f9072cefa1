"""Texts of MemTables: tokenized before an upsert returns, or at the first search."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.columns import TOMBSTONE_FIELD
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.protocol import Lengths
from memwal_sql.state.memtable import MemTable
from tests.each import each
from tests.model.writing import merge_rows
from tests.write.harness import SCHEMA, upsert

ANALYZER = Analyzer.of({})
TABLE = pa.schema([pa.field("id", pa.int64(), False), pa.field("body", pa.string())])


@pytest.fixture
def tokenized(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The texts that MemTables have tokenized so far."""
    found: list[str | None] = []
    whole = Analyzer.tokens_of

    def spied(self: Analyzer, texts: pa.Array) -> tuple[list[str], Lengths]:
        found.extend(texts.to_pylist())
        return whole(self, texts)

    monkeypatch.setattr(Analyzer, "tokens_of", spied)
    return found


def table_with_index(folder: Path) -> mw.Table:
    table = mw.create_table(folder / "t", TABLE, primary_key="id")
    merge_rows(table, rows({0: "an old text"}))
    table.create_index("body", "FTS")
    return table


def rows(texts: dict[int, str | None]) -> pa.Table:
    return pa.table([list(texts), list(texts.values())], schema=TABLE)


def found(table: mw.Table, text: str) -> list[int]:
    ids: list[int] = table.full_text_search("body", text)["id"].to_pylist()
    return sorted(ids)


@pytest.mark.parametrize("durable", [True, False])
def test_an_indexed_writer_has_tokenized_a_row_when_its_upsert_returns(
    durable: bool, tmp_path: Path, tokenized: list[str | None]
) -> None:
    table = table_with_index(tmp_path)
    tokenized.clear()
    with table.writer(durable=durable) as writer:
        writer.upsert(rows({1: "one text", 2: None}))
        assert tokenized == ["one text", None]
        writer.upsert(rows({1: "another text"}))
        assert tokenized == ["one text", None, "another text"]
        assert found(table, "another") == [1]
        assert found(table, "one") == []
        assert found(table, "texts") == [0, 1]
        assert tokenized == ["one text", None, "another text"]


def test_a_writer_that_indexes_nothing_leaves_it_to_the_first_search(
    tmp_path: Path, tokenized: list[str | None]
) -> None:
    table = table_with_index(tmp_path)
    tokenized.clear()
    with table.writer(indexed=False) as writer:
        writer.upsert(rows({1: "one text"}))
        writer.upsert(rows({1: "another text", 2: "one"}))
        assert tokenized == []
        assert found(table, "another") == [1]
        assert tokenized == ["one text", "another text", "one"]
        assert found(table, "one") == [2]
        assert len(tokenized) == 3


def test_rows_written_before_their_column_had_an_index_are_found(
    tmp_path: Path, tokenized: list[str | None]
) -> None:
    table = mw.create_table(tmp_path / "t", TABLE, primary_key="id")
    with table.writer() as writer:
        writer.upsert(rows({1: "one text"}))
        assert tokenized == []
        assert found(table, "text") == [1]
        assert tokenized == ["one text"]


def test_which_columns_are_maintained_is_asked_once_and_not_before_it_matters() -> None:
    asked = []

    def texts() -> list[tuple[str, Analyzer]]:
        asked.append(1)
        return [("val", ANALYZER)]

    memtable = MemTable("r", 1, SCHEMA, ("id",), texts)
    memtable.append(upsert({1: "a"}))
    assert asked == []
    memtable.index_texts()
    before = memtable.bytes
    memtable.append(upsert({2: "some more words"}))
    memtable.index_texts()
    assert asked == [1]
    assert memtable.bytes > before
    view = memtable.snapshot().text("val", ANALYZER)
    assert view.lengths.tolist() == [0, 1]  # stop words but one


@each("kind", [pa.string(), pa.list_(pa.string())])
def test_only_the_texts_at_a_path_count_as_indexed(kind: pa.DataType) -> None:
    doc = pa.struct([("title", kind), ("v", pa.list_(pa.float32(), 100))])
    schema = pa.schema([pa.field("id", pa.int64(), False), ("doc", doc), TOMBSTONE_FIELD])
    text = "tree" if kind == pa.string() else ["tree"]
    columns = [[1, 2], [{"title": text, "v": [0.0] * 100}] * 2, [False, False]]
    batch = pa.record_batch(columns, schema=schema)
    sizes = []
    for texts in ([], [("doc.title", ANALYZER)]):
        memtable = MemTable("r", 1, schema, ("id",), lambda texts=texts: texts)  # type: ignore[misc]
        memtable.index_texts()
        memtable.append(batch)
        sizes.append(memtable.bytes)
    assert 0 < sizes[1] - sizes[0] < 100


def test_an_upsert_is_written_whatever_tokenizing_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_with_index(tmp_path)

    def broken(self: Analyzer, texts: pa.Array) -> tuple[list[str], Lengths]:
        raise OSError("no language model")

    with table.writer() as writer:
        with monkeypatch.context() as patch:
            patch.setattr(Analyzer, "tokens_of", broken)
            writer.upsert(rows({1: "one text"}))
            with pytest.raises(OSError, match="no language model"):
                found(table, "one")
        assert found(table, "one") == [1]
