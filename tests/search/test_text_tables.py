"""Full-text search through the table's method and through SQL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.exec_nodes.text.trees import random_query, random_text
from tests.model.ranking import LanceRanking, Ranking, check_ranking

SCHEMA = pa.schema(
    [
        pa.field("lang", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("title", pa.string()),
        ("body", pa.string()),
        ("size", pa.int64()),
    ]
)
TEXTS = ("title", "body")
LANGUAGES = ("en", "de", "zh")
ANALYZER = {"base_tokenizer": "simple", "stem": False, "remove_stop_words": True}
ROWS = 150


class Library:
    """A table in three regions, flushed in parts, with replaced and deleted rows; and its model."""

    def __init__(self, uri: str) -> None:
        rng = Random("library")
        mw.create_table(
            uri, SCHEMA, primary_key=["lang", "id"], regions=[mw.identity("lang")]
        ).close()
        self.table = mw.open_table(uri)
        for column in TEXTS:
            self.table.create_index(column, "FTS", **ANALYZER)
        self.rows: dict[int, dict[str, Any]] = {}
        self.writer = self.table.writer()
        for part in range(4):
            chosen = rng.sample(range(ROWS), 70)
            self._upsert([self._row(rng, number) for number in chosen])
            gone = rng.sample(sorted(self.rows), 8)
            self.writer.delete(self._keys(gone))
            for number in gone:
                del self.rows[number]
            if part < 3:
                self.writer.flush()
            if part == 1:
                self.table.merge()

    @staticmethod
    def _row(rng: Random, number: int) -> dict[str, Any]:
        texts = {column: random_text(rng) for column in TEXTS}
        return {"lang": LANGUAGES[number % 3], "id": number, **texts, "size": rng.randrange(100)}

    def _upsert(self, rows: list[dict[str, Any]]) -> None:
        self.writer.upsert(pa.Table.from_pylist(rows, SCHEMA))
        self.rows.update((row["id"], row) for row in rows)

    def _keys(self, numbers: list[int]) -> pa.Table:
        return pa.table({"lang": [LANGUAGES[n % 3] for n in numbers], "id": numbers})

    def merged(self) -> LanceRanking:
        rows = pa.Table.from_pylist(list(self.rows.values()), SCHEMA)
        return LanceRanking(rows, dict.fromkeys(TEXTS, ANALYZER))

    def close(self) -> None:
        self.writer.close()
        self.table.close()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    made = Library(str(tmp_path_factory.mktemp("library") / "table"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def merged(library: Library) -> LanceRanking:
    return library.merged()


@pytest.fixture(scope="module")
def context(library: Library) -> datafusion.SessionContext:
    found = datafusion.SessionContext()
    mw.register(found, "library", library.table, consistency="strong")
    return found


def ranking(rows: pa.Table) -> Ranking:
    assert rows.schema.field("_score").type == pa.float32()
    return dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def test_random_queries_of_lance_find_what_one_lance_index_finds(
    library: Library, merged: LanceRanking
) -> None:
    rng = Random("table queries")
    for _ in range(40):
        _, theirs = random_query(rng)
        k = rng.choice((1, 5, 10, 1000))
        found = library.table.full_text_search("body", theirs, k)
        check_ranking(ranking(found), merged.search(theirs), k, tolerance=3e-5)


def test_rows_come_whole_or_in_the_columns_asked_for(library: Library) -> None:
    found = library.table.full_text_search("body", "write log", 5)
    assert found.schema.names == [*SCHEMA.names, "_score"]
    for row in found.to_pylist():
        del row["_score"]
        assert row == library.rows[row["id"]]
    found = library.table.full_text_search("body", "write log", 5, columns=["size"])
    assert found.schema.names == ["size", "_score"]


@pytest.mark.parametrize(
    "condition",
    ["lang = 'en'", "lang IN ('de', 'zh')", "size < 20", "title IS NOT NULL AND size >= 30"],
)
def test_a_filter_chooses_rows_before_the_ranking_and_changes_no_score(
    library: Library, context: datafusion.SessionContext, condition: str
) -> None:
    """Lance issue 9058: a score changed with a filter. A pruned region is in the corpus too."""
    everything = ranking(library.table.full_text_search("body", "write ahead log", 1000))
    tests = {
        "lang = 'en'": lambda row: row["lang"] == "en",
        "lang IN ('de', 'zh')": lambda row: row["lang"] != "en",
        "size < 20": lambda row: row["size"] < 20,
        "title IS NOT NULL AND size >= 30": lambda row: (
            row["title"] is not None and row["size"] >= 30
        ),
    }
    kept = {n: s for n, s in everything.items() if tests[condition](library.rows[n])}
    assert kept.keys() < everything.keys()
    for k in (3, 1000):
        wanted = dict(list(kept.items())[:k])
        found = library.table.full_text_search("body", "write ahead log", k, filter=condition)
        assert sorted(ranking(found).values()) == sorted(wanted.values())
        assert ranking(found).items() <= kept.items()
        sql = f"SELECT * FROM full_text_search('library', 'body', 'write ahead log', {k})"
        found = context.sql(f"{sql} WHERE {condition}").to_arrow_table()
        assert sorted(ranking(found).values()) == sorted(wanted.values())
        assert ranking(found).items() <= kept.items()


def test_sql_takes_texts_options_and_the_json_form(
    library: Library, context: datafusion.SessionContext
) -> None:
    form = {
        "boolean": {
            "must": [{"match": {"terms": "write log", "operator": "AND"}}],
            "should": [{"phrase": {"terms": "ahead log", "slop": 2}}],
            "must_not": [{"match": {"terms": "merge", "column": "title", "fuzziness": 1}}],
        }
    }
    calls = {
        "'write log', 7": library.table.full_text_search("body", "write log", 7),
        "'write log', 7, {operator: 'AND'}": library.table.full_text_search(
            "body", "write log", 7, operator="AND"
        ),
        "'wrte log', 7, {fuzziness: 1, boost: 2.0}": library.table.full_text_search(
            "body", "wrte log", 7, fuzziness=1, boost=2.0
        ),
        f"{quoted(json.dumps(form))}, 7": library.table.full_text_search("body", form, 7),
    }
    for arguments, expected in calls.items():
        assert expected.num_rows
        for name in ("full_text_search", "lance_fts"):
            found = context.sql(f"SELECT * FROM {name}('library', 'body', {arguments})")
            assert ranking(found.to_arrow_table()) == ranking(expected)


def test_several_columns_give_the_best_of_them(library: Library, merged: LanceRanking) -> None:
    found = ranking(library.table.full_text_search(["title", "body"], "write log", 20))
    in_each = [ranking(library.table.full_text_search(c, "write log", 1000)) for c in TEXTS]
    best = {
        n: max(one.get(n, 0.0) for one in in_each) for n in in_each[0].keys() | in_each[1].keys()
    }
    check_ranking(found, best, 20)


def test_searches_join_with_tables(context: datafusion.SessionContext, library: Library) -> None:
    found = context.sql(
        "SELECT s.id, s._score, l.size FROM full_text_search('library', 'body', 'log', 5) s "
        "JOIN library l ON s.id = l.id AND s.lang = l.lang ORDER BY s._score DESC"
    ).to_arrow_table()
    assert found.num_rows == 5
    assert ranking(found) == ranking(library.table.full_text_search("body", "log", 5))
    assert all(library.rows[row["id"]]["size"] == row["size"] for row in found.to_pylist())


def test_a_search_reads_what_its_consistency_and_its_version_show(
    tmp_path: Path,
) -> None:
    table = mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key=["lang", "id"])
    table.create_index("body", "FTS", **ANALYZER)

    def found(handle: mw.Table, consistency: str) -> list[int]:
        rows = handle.full_text_search("body", "log", consistency=consistency)
        return sorted(rows["id"].to_pylist())

    def row(number: int, body: str) -> pa.Table:
        return pa.Table.from_pylist([{"lang": "en", "id": number, "body": body}], SCHEMA)

    with table.writer() as writer:
        writer.upsert(row(1, "log"))
        writer.flush()
        version = table.snapshot_regions()
        writer.upsert(row(2, "log"))
        writer.flush()
        writer.upsert(row(1, "merge"))
        expected = {"eventual": [1], "manifest": [1, 2], "strong": [2]}
        assert {name: found(table, name) for name in expected} == expected
        then = mw.open_table(table.uri, version=version)
        assert found(then, "strong") == [1]
