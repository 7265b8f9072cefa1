"""`match(column, 'words')` in WHERE keeps the rows whose text has all the words' tokens, by the
analyzer of the column, wherever the rows lie and whatever covers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.lance import tokenize

import memwal_sql as mw
from exec_nodes.resident.admission import Admission
from memwal_sql.session.scalar_functions import Words
from tests.each import each
from tests.model.writing import session_of
from tests.soak import SOAK

WORDS = ("tree", "trees", "Log", "logging", "the", "write", "ahead", "naïve", "a-b")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int64()),
        ("body", pa.string()),
        ("title", pa.large_string()),
    ]
)


class Texts:
    """A table of a base, generations and a MemTable, and its live rows."""

    def __init__(self, folder: Path, index: dict[str, Any] | None) -> None:
        self.rng = Random(7)
        self.live: dict[int, dict[str, Any]] = {}
        self.table = mw.create_table(folder, SCHEMA, primary_key="id", regions=[mw.bucket("id", 2)])
        self.writer = self.table.writer()
        self.change(range(60))
        self.writer.flush()
        self.table.merge()
        self.analyzer = index
        if index is not None:
            self.table.create_index("body", "FTS", **index)
        self.change(range(40, 80))
        self.writer.flush()
        self.change(range(0, 80, 5))
        self.writer.delete([3, 41])
        for key in (3, 41):
            del self.live[key]
        self.context = datafusion.SessionContext()
        mw.register(self.context, "t", self.table)

    def change(self, keys: range) -> None:
        rows = [
            {"id": key, "n": key % 7, "body": self.text(), "title": self.text()} for key in keys
        ]
        self.live.update({row["id"]: row for row in rows})
        self.writer.upsert(pa.Table.from_pylist(rows, SCHEMA))

    def text(self) -> str | None:
        words = self.rng.choices(WORDS, k=self.rng.randrange(5))
        return self.rng.choice([None, *[" ".join(words)] * 9])

    def ids(self, condition: str) -> list[int]:
        query = f"SELECT id FROM t WHERE {condition} ORDER BY id"
        return self.context.sql(query).to_pydict()["id"]

    def has(self, row: dict[str, Any], words: str, column: str = "body") -> bool:
        settings = {"stem": True, "remove_stop_words": True}
        settings |= self.analyzer or {} if column == "body" else {}
        tokens = [
            {one.text for one in tokenize(text or "", **settings)} for text in (row[column], words)
        ]
        return bool(tokens[1]) and tokens[0] >= tokens[1]

    def expected(self, words: str, column: str = "body") -> list[int]:
        return sorted(key for key, row in self.live.items() if self.has(row, words, column))


@pytest.fixture(
    scope="module",
    params=[None, {}, {"stem": False, "remove_stop_words": False}],
    ids=["no index", "index", "another analyzer"],
)
def texts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Texts]:
    made = Texts(tmp_path_factory.mktemp("match") / "t", request.param)
    yield made
    made.writer.close()


@each("words", ["tree", "Trees log", "the", "the write", "NAÏVE", "logging ahead", "a", "", "b x"])
def test_rows_have_all_tokens(texts: Texts, words: str) -> None:
    assert texts.ids(f"match(body, '{words}')") == texts.expected(words)
    assert texts.ids(f"match(title, '{words}')") == texts.expected(words, "title")


def test_it_may_stand_beside_and_within_others(texts: Texts) -> None:
    live, tree = texts.live, set(texts.expected("tree"))
    assert texts.ids("match(body, 'tree') AND n = 3") == sorted(k for k in tree if k % 7 == 3)
    assert texts.ids("match(body, 'tree') OR n = 3") == sorted(
        k for k in live if k in tree or k % 7 == 3
    )
    assert texts.ids("NOT match(body, 'tree')") == sorted(
        k for k, row in live.items() if row["body"] is not None and k not in tree
    )
    both = tree & set(texts.expected("log", "title"))
    assert texts.ids("match(body, 'tree') AND match(title, 'log')") == sorted(both)


def test_it_reaches_the_scan_below_joins_subqueries_and_searches(texts: Texts) -> None:
    joined = "SELECT t.id FROM t JOIN t u ON t.id = u.id WHERE match(t.body, 'tree') ORDER BY t.id"
    assert texts.context.sql(joined).to_pydict()["id"] == texts.expected("tree")
    found = "id IN (SELECT id FROM t WHERE match(body, 'tree'))"
    assert texts.ids(found) == texts.expected("tree")
    searched = (
        "SELECT id FROM full_text_search('t', 'title', 'log', 100) WHERE match(body, 'tree') "
        "ORDER BY id"
    )
    both = set(texts.expected("tree")) & set(texts.expected("log", "title"))
    assert texts.context.sql(searched).to_pydict()["id"] == sorted(both)


def test_filters_of_scans_and_searches_know_it(texts: Texts) -> None:
    table, tree = texts.table, set(texts.expected("tree"))
    assert sorted(table.to_arrow(["id"], "match(body, 'tree')")["id"].to_pylist()) == sorted(tree)
    assert table.count_rows("match(body, 'tree') AND n = 3") == sum(k % 7 == 3 for k in tree)
    assert table.count_rows("match(body, 'tree') AND random() >= 0") == len(tree)
    both = tree & set(texts.expected("log", "title"))
    found = table.full_text_search("title", "log", 100, filter="match(body, 'tree')")
    assert sorted(found["id"].to_pylist()) == sorted(both)
    assert table.count_rows("l2_distance([1.0], [3.0]) = 2") == len(texts.live)


def test_statements_change_the_rows_that_match(tmp_path: Path) -> None:
    texts = Texts(tmp_path / "t", None)
    gone = texts.expected("tree")
    mw.sql(texts.context, "DELETE FROM t WHERE match(body, $words)", words="tree")
    assert texts.ids("true") == sorted(set(texts.live) - set(gone))
    texts.writer.close()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT match(body, 'tree') FROM t",
        "SELECT t.id FROM t JOIN t u ON t.id = u.id WHERE match(t.body, 'tree') OR u.n = t.n + 1",
        "SELECT match('a tree', 'tree')",
    ],
)
def test_elsewhere_it_says_where_it_belongs(texts: Texts, query: str) -> None:
    with pytest.raises(mw.UnsupportedError, match="is for WHERE"), mw.memwal_errors():
        texts.context.sql(query).collect()


@each("condition", ["match(body, '{}')", "NOT match(body, '{}')", "n = 1 OR match(title, '{}')"])
def test_words_have_a_bound_wherever_they_stand(texts: Texts, condition: str) -> None:
    """The answer is the same however many rows DataFusion makes the words for at once."""
    words = "tree " * 30
    short = texts.ids(condition.format("tree"))
    with Words.set(most=len(words), repeated_bytes=300):
        assert texts.ids(condition.format(words)) == short
        for door in (texts.ids, texts.table.count_rows):
            with pytest.raises(mw.InvalidCallError, match=r"at most 150 characters.*have 151"):
                raised(door, condition.format(words + "."))


def raised(door: Callable[[str], Any], condition: str) -> None:
    with mw.memwal_errors():
        door(condition)


@each("condition", ["match(a.t, 'x')", "match(a.t, 'x') OR b = 'x'", "match(b, 'q') OR a.t = 'x'"])
def test_fields_of_structs_are_refused(tmp_path: Path, condition: str) -> None:
    struct = pa.struct([("t", pa.string())])
    schema = pa.schema([SCHEMA.field("id"), ("a", struct), ("b", pa.string())])
    table = mw.create_table(tmp_path / "t", schema, primary_key="id")
    context = session_of("t", table)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "a": {"t": "x"}, "b": "x"}])
        for call in (
            lambda: mw.sql(context, f"SELECT id FROM t WHERE {condition}").to_pylist(),
            lambda: mw.sql(context, f"DELETE FROM t WHERE {condition}"),
            lambda: table.to_arrow(filter=condition),
            lambda: table.full_text_search("b", "x", filter=condition),
        ):
            with pytest.raises(mw.InvalidCallError, match="reads the struct 'a'"):
                call()


def test_columns_of_different_analyzers_need_conditions_of_their_own(texts: Texts) -> None:
    condition = "match(body, 'tree') OR match(title, 'tree')"
    if texts.analyzer:
        with pytest.raises(mw.UnsupportedError, match="condition of its own"), mw.memwal_errors():
            texts.ids(condition)
    else:
        either = set(texts.expected("tree")) | set(texts.expected("tree", "title"))
        assert texts.ids(condition) == sorted(either)


@pytest.mark.parametrize("seed", range(SOAK))
@pytest.mark.parametrize("small", [-1, Admission.small], ids=["large", "small"])
def test_an_index_answers_as_the_texts_do(tmp_path: Path, seed: int, small: int) -> None:
    """Whatever it covers: within IS TRUE the texts are read."""
    texts = Texts(tmp_path / "t", {})
    rng, table, writer = Random(seed), texts.table, texts.writer
    with Admission.set(small=small, fetch=0):
        for _ in range(10):
            begin = rng.randrange(80)
            match rng.randrange(6):
                case 0 | 1:
                    texts.change(range(begin, begin + rng.randrange(40)))
                case 2:
                    gone = [key for key in range(begin, begin + 9) if texts.live.pop(key, None)]
                    writer.delete(gone)
                case 3:
                    writer.flush()
                case 4:
                    writer.flush()
                    table.merge()
                case 5:
                    table.build_indexes()
            for _ in range(2):
                words = " ".join(rng.choices(WORDS, k=rng.randrange(1, 4)))
                ids = texts.ids(f"match(body, '{words}')")
                assert ids == texts.expected(words) == texts.ids(f"match(body, '{words}') IS TRUE")
                some = [key for key in ids if key % 7 == 3]
                assert texts.ids(f"match(body, '{words}') AND n = 3") == some
                few = f"SELECT id FROM t WHERE match(body, '{words}') LIMIT 3"
                found = texts.context.sql(few).to_pydict()["id"]
                assert len(set(found) & set(ids)) == len(found) == min(3, len(ids))
    texts.writer.close()


def test_no_text_is_read_where_an_index_covers_all(texts: Texts) -> None:
    query = "EXPLAIN ANALYZE SELECT id FROM t WHERE match({}, 'tree')"
    plans = [
        texts.context.sql(query.format(column)).to_pydict()["plan"][0]
        for column in ("body", "title")
    ]
    assert [plan.count("indexed_rows=") for plan in plans] == [
        0 if texts.analyzer is None else plans[0].count("ScanExec"),
        0,
    ]


def test_a_function_of_the_session_keeps_its_name(tmp_path: Path) -> None:
    context, calls = datafusion.SessionContext(), []
    texts = Texts(tmp_path / "t", {})

    def same(one: pa.Array, other: pa.Array) -> pa.Array:
        calls.append(len(one))
        return pc.equal(one, other)

    kinds = [pa.string(), pa.string()]
    context.register_udf(datafusion.udf(same, kinds, pa.bool_(), "stable", "match"))
    mw.register(context, "t", texts.table)
    query = "SELECT id FROM t WHERE match(body, 'tree') ORDER BY id"
    context.sql(query).execution_plan()
    assert not calls
    found = context.sql(query).to_pydict()["id"]
    assert found == sorted(key for key, row in texts.live.items() if row["body"] == "tree")
    texts.writer.close()


def test_l2_distance_is_array_distance_by_another_name() -> None:
    context = datafusion.SessionContext()
    table = mw.create_table("memory://l2", SCHEMA, primary_key="id")
    mw.register(context, "t", table)
    lists = [[1.0, 2.0], [None, 1.0], None, [3.5, -1.0]]
    context.register_record_batches(
        "v", [pa.table({"v": pa.array(lists, pa.list_(pa.float32()))}).to_batches()]
    )
    found = context.sql("SELECT l2_distance(v, [1, 0]) AS a, array_distance([1, 0], v) AS b FROM v")
    assert [row["a"] for row in found.to_pylist()] == [row["b"] for row in found.to_pylist()]
