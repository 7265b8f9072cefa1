"""Texts in lists and in structs are found as one Lance index on their path finds them."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import lance
import polars as pl
import pyarrow as pa
import pytest
from lance.query import MatchQuery, PhraseQuery

import memwal_sql as mw
from tests.each import each
from tests.model.ranking import LanceRanking, check_ranking
from tests.model.writing import session_of
from tests.search.test_vector_histories import ANALYZERS, Checked
from tests.search.text_history import globally

KEY = pa.field("id", pa.int64(), nullable=False)
DOC = pa.struct([("n", pa.int64()), ("title", pa.string()), ("tags", pa.large_list(pa.string()))])
STEPS = 9


class ListAndField(Checked):
    """The first text is a field of a struct, the second a list of parts of it."""

    schema = pa.schema([KEY, ("doc", DOC), ("body", pa.list_(pa.large_string()))])
    columns = "doc.title", "body"

    def table_of(self, numbers: list[int], texts: list[tuple[str | None, str | None]]) -> pa.Table:
        docs = [self.doc({"n": 1, "title": text}, text) for text, _ in texts]
        return pa.table([numbers, docs, [parts(self.rng, text) for _, text in texts]], self.schema)

    def doc(self, doc: dict[str, Any], text: str | None) -> dict[str, Any] | None:
        """A struct; sometimes none if it has no text."""
        return doc if text is not None or self.rng.random() < 0.5 else None


class ListInField(ListAndField):
    """The first text is a list in a struct in a struct."""

    schema = pa.schema([KEY, ("at", pa.struct([("doc", DOC)])), ("body", pa.string())])
    columns = "at.doc.tags", "body"

    def table_of(self, numbers: list[int], texts: list[tuple[str | None, str | None]]) -> pa.Table:
        docs = [{"doc": self.doc({"tags": parts(self.rng, text)}, text)} for text, _ in texts]
        return pa.table([numbers, docs, [text for _, text in texts]], self.schema)


def parts(rng: Random, text: str | None) -> list[str | None] | None:
    """A list whose elements are a text together, with blanks between them."""
    if text is None:
        return rng.choice((None, [], [None]))
    made: list[str | None] = [""]
    for word in text.split(" "):
        if rng.random() < 0.5:
            made.append(word)
        else:
            made[-1] = f"{made[-1] or ''} {word}"
        made += [None] * (rng.random() < 0.2)
    return made


@pytest.mark.parametrize("shape", [ListAndField, ListInField])
def test_a_history_of_nested_texts_ranks_as_one_index(
    shape: type[ListAndField], tmp_path: Path
) -> None:
    seed = f"nested {shape.__name__}"
    shape(seed, str(tmp_path / "table"), ANALYZERS["plain"], globally).run(STEPS)


LISTS: list[list[str | None] | None] = [
    *([["a1 b2", "c3"], ["a1", "b2"], [None, "a1"], [], None, [""], ["the", "", "a1"]]),
    *([[None], ["a1 b2 c3"], ["a1b2c3"], ["b2 c3"]]),
]


@each("tokenizer", ["simple", "raw", "whitespace", "ngram", "icu"])
def test_a_list_is_one_text_for_every_tokenizer(tokenizer: str, tmp_path: Path) -> None:
    """lance-format/lance #8180: Lance itself tokenizes rows outside an index otherwise."""
    analyzer = {"base_tokenizer": tokenizer, "stem": False, "remove_stop_words": True}
    schema = pa.schema([KEY, ("body", pa.list_(pa.string()))])
    every = pa.table([range(len(LISTS)), LISTS], schema)
    whole = LanceRanking(every, {"body": analyzer})
    table = mw.create_table(tmp_path / f"{tokenizer}", schema, primary_key="id")
    table.create_index("body", "FTS", **analyzer)
    with table.writer() as writer:
        for place in range(0, len(LISTS), 4):
            writer.upsert(every.slice(place, 4))
            if place < 8:
                writer.flush()
            if not place:
                table.merge()
        for words in ("a1", "a1 b2", "b2 c3", "c3", "the", ""):
            phrase = {"phrase": {"query": words}}
            for ours, theirs in ((words, MatchQuery), (phrase, PhraseQuery)):
                found = table.full_text_search("body", ours)
                scores = dict(
                    zip(found["id"].to_pylist(), found["_score"].to_pylist(), strict=True)
                )
                check_ranking(scores, whole.search(theirs(words, "body")))


def test_a_list_that_polars_leaves_out_has_no_text(tmp_path: Path) -> None:
    schema = pa.schema([KEY, ("tags", pa.list_(pa.string()))])
    table = mw.create_table(tmp_path / "t", schema, primary_key="id")
    frame = pl.DataFrame({"id": [1, 2], "tags": [["a", "log"], ["a", "tree"]]})
    with table.writer() as writer:
        writer.upsert(frame.select("id", pl.when(id=1).then("tags").alias("tags")))
        for words, expected in (("log", [1]), ("tree", [])):
            assert table.full_text_search("tags", words)["id"].to_pylist() == expected


def test_paths_work_in_sql_and_after_a_field_is_renamed(tmp_path: Path) -> None:
    schema = pa.schema([KEY, ("doc", DOC)])
    table = mw.create_table(tmp_path / "t", schema, primary_key="id")
    context = session_of("t", table)
    for statement in ("CREATE", "DROP", "CREATE"):
        what = "doc_title_idx ON t" if statement == "DROP" else "ON t USING fts (doc.title)"
        mw.sql(context, f"{statement} INDEX {what}")
    mw.sql(context, "CREATE INDEX IF NOT EXISTS ON t USING fts (doc.title)")
    assert ["doc.title"] in table.indexes()["columns"].to_pylist()
    with table.writer() as writer:
        for key in range(4):
            row = {"n": key, "title": f"log w{key}", "tags": [f"w{key}", "log"]}
            writer.upsert([{"id": key, "doc": row}])
            if key < 3:
                writer.flush()
            if not key:
                table.merge()

        def found(call: str) -> list[int]:
            rows = mw.sql(context, f"SELECT id FROM full_text_search('t', {call}) ORDER BY id")
            return list(rows.to_arrow_table()["id"].to_pylist())

        assert found("'doc.title', 'log'") == [0, 1, 2, 3] == found("'doc.tags', 'log'")
        plan = "EXPLAIN SELECT id FROM full_text_search('t', 'doc.title', 'log')"
        assert context.sql(plan).to_pylist()[-1]["plan"].count("index=doc_title_idx") > 3
        assert found("['doc.title', 'doc.tags'], 'w1'") == [1]
        both = '{"boolean": {"must": [{"match": {"query": "w2", "column": "doc.tags"}}]}}'
        assert found(f"'doc.title', '{both}'") == [2]
    lance.dataset(table.uri).alter_columns({"path": "doc.title", "name": "heading"})
    table = mw.open_table(table.uri)
    context = session_of("t", table)
    assert found("'doc.heading', 'log'") == [0, 1, 2, 3] and found("'doc.heading', 'w2'") == [2]
    with table.writer() as writer:
        writer.upsert([{"id": 9, "doc": {"n": 1, "heading": "log", "tags": []}}])
        table.flush()
        table.merge()
        table.build_indexes()
        assert found("'doc.heading', 'log'") == [0, 1, 2, 3, 9]
    table.drop_columns("doc")
    assert table.indexes()["columns"].to_pylist() == [["id"]]


@each(
    "column, message",
    [
        ("doc", "column 'doc' is struct<.*>; there are texts in .'doc.title', 'doc.tags'"),
        ("doc.n", "'doc.n' is not a column"),
        ("doc.nope", "'doc.nope' is not a column"),
        ("numbers", "column 'numbers' is list<.*int64>; there are texts in"),
        ("items.t", "'items.t' is not a column"),
    ],
)
def test_a_path_without_texts_is_refused(tmp_path: Path, column: str, message: str) -> None:
    items = pa.list_(pa.struct([("t", pa.string())]))
    schema = pa.schema([KEY, ("doc", DOC), ("numbers", pa.list_(pa.int64())), ("items", items)])
    table = mw.create_table(tmp_path / column, schema, primary_key="id")
    with pytest.raises(mw.InvalidCallError, match=message):
        table.full_text_search(column, "log")
    with pytest.raises(mw.InvalidCallError, match=f"'{column}' has no texts"):
        table.create_index(column, "FTS")
    # Lance takes some of these: the table works with such an index.
    if column == "items.t":
        lance.dataset(table.uri).create_scalar_index(column, "INVERTED")
        table = mw.open_table(table.uri)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "items": [{"t": "log"}]}], missing="null")
        writer.flush()
        assert table.full_text_search("doc.title", "log").num_rows == 0


def test_every_search_takes_conditions_on_fields(tmp_path: Path) -> None:
    """Over the base table, a generation and a MemTable."""
    kind = pa.struct({"t": pa.string(), "deep": pa.struct({"n": pa.int64()})})
    vector = pa.list_(pa.float32(), 2)
    schema = pa.schema({"id": pa.int64(), "a": kind, "b": pa.string(), "v": vector})
    table = mw.create_table(tmp_path / "t", schema, primary_key="id")
    with table.writer() as writer:
        for step in range(3):
            ids = range(step * 10, step * 10 + 10)
            structs = [{"t": "xy"[n % 2], "deep": {"n": n}} if n % 5 else None for n in ids]
            vectors = [[float(n), 0.0] for n in ids]
            writer.upsert({"id": [*ids], "a": structs, "b": ["word"] * 10, "v": vectors})
            if step < 2:
                writer.flush()
            if not step:
                table.merge()
        for condition in ("a.t = 'x'", "a['deep']['n'] > 12 AND a.t IN ('y')", "a.t IS NULL"):
            matching = sorted(table.to_arrow(["id"], filter=condition)["id"].to_pylist())
            options: dict[str, Any] = {"columns": ["id"], "filter": condition}
            for nearest in (
                table.vector_search("v", [0.0, 0.0], 30, **options),
                table.full_text_search("b", "word", 30, **options),
                table.hybrid_search("v", [0.0, 0.0], "b", "word", 30, **options),
            ):
                assert sorted(nearest["id"].to_pylist()) == matching != []
