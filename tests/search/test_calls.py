"""Searches as programs call them, over rows that lie everywhere: the right rows, no rows, or an
error that names what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.model.ranking import LanceRanking, Ranking, check_ranking
from tests.model.small_rows import SCHEMA as SMALL
from tests.model.small_rows import make_rows
from tests.model.writing import session_of

SCHEMA = pa.schema(
    [
        *(pa.field("id", pa.int64(), False), pa.field("body", pa.string())),
        *(pa.field("title", pa.string()), pa.field("v", pa.list_(pa.float32(), 2))),
    ]
)
ANALYZER = {"base_tokenizer": "simple", "stem": False, "remove_stop_words": True}
TEXTS = ["write ahead log", "the of a", "log", None, "quick brown fox", "", "brown quick log",
         "log fox", "."]  # fmt: skip
LOGS = [0, 2, 6, 7]


def rows_of(texts: list[str | None], start: int = 0) -> pa.Table:
    ids = range(start, start + len(texts))
    vectors = [[float(i), 1.0] for i in ids]
    return pa.table([ids, texts, [""] * len(texts), vectors], schema=SCHEMA)


def table_of(uri: Path, texts: list[str | None], **analyzer: Any) -> tuple[mw.Table, Any]:
    """A third of the texts is in the base table, a third flushed, and a third in the memory of the
    writer."""
    table = mw.create_table(uri, SCHEMA, primary_key="id")
    table.create_index("body", "FTS", **(analyzer or ANALYZER))
    third, writer = len(texts) // 3, table.writer()
    for number in range(3):
        start = number * third
        writer.upsert(rows_of(texts[start : None if number == 2 else start + third], start))
        if number < 2:
            writer.flush()
        if not number:
            table.merge()
    return table, writer


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mw.Table]:
    made, writer = table_of(tmp_path_factory.mktemp("calls") / "t", TEXTS)
    yield made
    writer.close()


def ids(
    table: mw.Table, query: Any, k: int = 10, column: Any = "body", **options: Any
) -> list[int]:
    return sorted(table.full_text_search(column, query, k, **options)["id"].to_pylist())


@each("query", ["", " ", "the", "of the a", "?!", "\N{COMBINING ACUTE ACCENT}"])
def test_a_query_without_tokens_finds_nothing(table: mw.Table, query: str) -> None:
    assert ids(table, query) == []


@each("query", ["log' OR 1=1 --", "log*", "%log%", "log\x00", "NOT log", '"log"', "+log -zzz"])
def test_operators_and_patterns_are_words(table: mw.Table, query: str) -> None:
    assert ids(table, query) == LOGS == ids(table, query, column=["body", "title"])
    context, text = session_of("t", table), query.replace("'", "''")
    for column in ("'body'", "['body', 'title']"):
        sql = f"SELECT id FROM full_text_search('t', {column}, '{text}', 10)"
        assert sorted(context.sql(sql).to_arrow_table()["id"].to_pylist()) == LOGS


@each("text", ["{log}", '{"phrase": {"query": "log ahead"}}', " {log", '{"match": "log', '"log"'])
def test_a_plain_text_is_words_in_every_search(table: mw.Table, text: str) -> None:
    words = "".join(character if character.isalpha() else " " for character in text)
    assert LOGS == ids(table, words) == ids(table, text, plain=True)
    assert ids(table, text, column=["body", "title"], plain=True) == LOGS
    hybrid = table.hybrid_search("v", [1, 2], "body", text, plain=True)
    assert hybrid.equals(table.hybrid_search("v", [1, 2], "body", words))
    context, call = session_of("t", table), "SELECT id FROM full_text_search('t', 'body', "
    for found in (
        context.sql(f"{call} '{text}', 10, {{plain: true}})"),
        mw.sql(context, f"{call} $words, plain => true)", words=text),
    ):
        assert sorted(found.to_arrow_table()["id"].to_pylist()) == LOGS


def test_the_forms_that_are_named_do_what_operators_mean(table: mw.Table) -> None:
    log, fox = ({"match": {"query": word}} for word in ("log", "fox"))
    assert ids(table, "log fox", operator="AND") == [7]
    assert ids(table, {"boolean": {"must": [log], "must_not": [fox]}}) == [0, 2, 6]
    assert ids(table, {"phrase": {"query": "quick brown"}}) == [4]
    assert ids(table, "log \U0001f642") == LOGS


@each(
    "query, tokens",
    [
        ("fox and Dogs", 'tokens=["fox", "dogs"]'),
        ('{"match": {"query": "Fox dog", "fuzziness": 1}}', 'tokens=["Fox", "dog"]'),
        ('{"phrase": {"query": "the quick fox"}}', 'tokens=["quick", "fox"]'),
        (
            '{"boolean": {"must": [{"match": {"query": "fox"}}], "must_not": [{"match": '
            '{"query": "dogs"}}]}}',
            'tokens=["fox" | "dogs"]',
        ),
        ('{"multi_match": {"query": "fox", "columns": ["body"]}}', 'tokens=["fox"]'),
        ('{"combined_fields": {"query": "a fox", "columns": ["body"]}}', 'tokens=["fox"]'),
        ("the", "tokens=[]"),
        (" ".join(f"w{n}" for n in range(30)), '"w19", …]'),
    ],
)
def test_explain_shows_what_a_query_is_taken_for(table: mw.Table, query: str, tokens: str) -> None:
    sql = f"EXPLAIN SELECT id FROM full_text_search('t', 'body', '{query}', 10)"
    assert tokens in session_of("t", table).sql(sql).to_pylist()[-1]["plan"]


TEXT, VECTOR = mw.Table.full_text_search, mw.Table.vector_search


@each(
    "search, arguments, message",
    [
        (TEXT, {"column": "author", "query": "log"}, "author"),
        (TEXT, {"column": "id", "query": "log"}, "id"),
        (TEXT, {"query": 3}, "3"),
        (TEXT, {"query": None}, "None"),
        *((TEXT, {"query": "log", "k": k}, str(k)) for k in (0, -1, 1.5)),
        (TEXT, {"query": "log", "operator": "XOR"}, "XOR"),
        (TEXT, {"query": "log", "fuzziness": -1}, "-1"),
        (TEXT, {"query": "log", "plain": "yes"}, "plain='yes' must be true or false"),
        (
            TEXT,
            {"query": {"match": {"query": "log"}}, "plain": True},
            "plain=True is for .*'match'",
        ),
        (TEXT, {"query": "log", "boost": float("nan")}, "nan"),
        (TEXT, {"query": "log", "nprobes": 3}, "nprobes"),
        (TEXT, {"query": {"march": {"query": "log"}}}, "march"),
        (TEXT, {"query": '{"match": '}, "JSON"),
        (TEXT, {"query": "log", "columns": ["author"]}, "author"),
        (TEXT, {"query": "log", "filter": "author = 3"}, "author"),
        (TEXT, {"query": "log \udc80"}, "half a surrogate pair"),
        (TEXT, {"query": {"phrase": {"query": "a \ud800 log"}}}, "half a surrogate pair"),
        (TEXT, {"query": '{"match": {"query": "\\udc80"}}'}, "half a surrogate pair"),
        (VECTOR, {"query": [1, None]}, "element 1 of the query is null"),
        (VECTOR, {"query": pa.array([None, 2.0])}, "element 0 of the query is null"),
        (VECTOR, {"query": [[1, 2], [3, None]]}, "element 1 of query 1 is null"),
        (VECTOR, {"query": [1, float("nan")], "filter": "1 = 0"}, "is nan"),
    ],
)
def test_a_wrong_call_is_refused_with_what_is_wrong(
    table: mw.Table, search: Any, arguments: dict[str, Any], message: str
) -> None:
    column = "body" if search is TEXT else "v"
    with pytest.raises(mw.InvalidCallError, match=message):
        search(table, **{"column": column, **arguments})


@each("operator", ["OR", "AND"])
@each("text", ["log", "log zzz", "the", ""])
def test_more_words_are_required_than_there_are(table: mw.Table, text: str, operator: str) -> None:
    assert ids(table, text, minimum_should_match=2, operator=operator) == []
    assert ids(table, "quick brown", minimum_should_match=2) == [4, 6]


@each("condition", ["1 = 0", "false", "NULL", "id = NULL", "id < 5 AND 1 = 0"])
def test_a_condition_that_no_row_can_meet_gives_no_rows(table: mw.Table, condition: str) -> None:
    found = table.vector_search("v", [1, 2], 3, condition)
    assert (found.num_rows, found.column_names) == (0, [*SCHEMA.names, "_distance"])
    assert ids(table, "log", filter=condition) == []
    assert table.hybrid_search("v", [1, 2], "body", "log", 3, condition).num_rows == 0


@each("k", [2**31, 2**62, 2**63 - 1, 2**70])
def test_more_rows_may_be_asked_for_than_any_table_has(table: mw.Table, k: int) -> None:
    assert table.vector_search("v", [1, 2], k).num_rows == len(TEXTS)
    assert ids(table, "log", k) == LOGS
    assert table.hybrid_search("v", [1, 2], "body", "log", k).num_rows == len(TEXTS)
    by_vector = table.hybrid_search("v", [1, 2], "body", "zzz", k)
    assert by_vector["id"].to_pylist() == table.vector_search("v", [1, 2], k)["id"].to_pylist()
    assert by_vector["_score"].null_count == len(TEXTS)


SCRIPTS = {
    "Latin": ("naïve café straße", "Café"),
    "Cyrillic": ("журнал предзаписи", "Журнал"),
    "Greek": ("αρχείο καταγραφής", "ΑΡΧΕΊΟ"),
    "Hebrew": ("יומן כתיבה", "יומן"),
    "Arabic": ("سجل الكتابة المسبقة", "سجل"),
    "Devanagari": ("लेखन लॉग", "लॉग"),
    "Thai": ("บันทึก การเขียน", "บันทึก"),
    "Hangul": ("선행 기입 로그", "로그"),
    "Kana": ("ログ 先行 書き込み", "ログ"),
    "Han": ("预写 日志", "日志"),
    "Han beyond the BMP": ("𠀋 𠂢", "𠂢"),
    "Georgian": ("ჟურნალი ჩანაწერი", "ჟურნალი"),
    "digits": ("2026 ٢٠٢٦", "2026"),
    "mathematical": ("\U0001d4d8 \U0001d4db\U0001d4dc", "\U0001d4db\U0001d4dc"),
}


@pytest.mark.parametrize("tokenizer", ["simple", "icu"])
def test_texts_in_any_script_are_found(tokenizer: str, tmp_path: Path) -> None:
    texts = [text for text, _ in SCRIPTS.values()]
    analyzer = {**ANALYZER, "base_tokenizer": tokenizer, "ascii_folding": False}
    table, writer = table_of(tmp_path / "t", list(texts), **analyzer)
    for place, (_, query) in enumerate(SCRIPTS.values()):
        assert ids(table, query) == [place], query
        assert place in ids(table, texts[place].split()[0], fuzziness=1), query
        assert ids(table, {"phrase": {"query": texts[place]}}) == [place], query
    writer.close()


def scores(table: mw.Table, query: Any, k: int = 100, where: str | None = None) -> Ranking:
    rows = table.full_text_search("body", query, k, filter=where)
    found = dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, f"keys were returned twice: {rows['id'].to_pylist()}"
    return found


def by_sql(table: mw.Table, query: str, k: int, where: str | None) -> Ranking:
    sql = f"SELECT id, _score FROM full_text_search('t', 'body', '{query}', {k})"
    rows = session_of("t", table).sql(f"{sql} WHERE {where}" if where else sql).to_arrow_table()
    return dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))


@pytest.mark.parametrize("indexed", [True, False])
def test_a_search_ranks_the_newest_rows_whatever_became_of_the_older_ones(
    tmp_path: Path, indexed: bool
) -> None:
    """Of lance-format/lance: #6929, a filter let replaced texts through; #6888 and #6899, a worse
    new version brought the better old one back; #6880 and #6881, keys of one MemTable were found
    twice; #7916, stale rows took places among the first; #9167, texts in memory were lost without
    an index; #9058, scores changed with filters and with what an index covers."""
    live = {i: "log " * (10 - i) + "table " * (i + 1) for i in range(10)}
    table = mw.create_table(tmp_path / "t", SCHEMA, primary_key="id")
    if indexed:
        table.create_index("body", "FTS", **ANALYZER)
    analyzer = ANALYZER if indexed else {}

    def write(texts: dict[int, str]) -> None:
        rows = [{"id": key, "body": text} for key, text in texts.items()]
        writer.upsert(rows, missing="null")
        live.update(texts)

    def check() -> None:
        rows = pa.table({"id": list(live), "body": list(live.values())})
        merged = LanceRanking(rows, {"body": analyzer})
        for query in ("log", "merge", "table region61"):
            every = merged.search(lance.query.MatchQuery(query, "body"))
            for k in (1, 5, 100):
                check_ranking(scores(table, query, k), every, k)
            for where, low, high in (("id < 5", 0, 5), ("id > 60", 61, 99), ("id = 2", 2, 3)):
                kept = {i: s for i, s in scores(table, query).items() if low <= i < high}
                assert scores(table, query, 100, where) == kept
        assert by_sql(table, "log", 5, "id < 5") == scores(table, "log", 5, "id < 5")
        assert by_sql(table, "log", 5, None) == scores(table, "log", 5)

    with table.writer(indexed=indexed) as writer:
        write(dict(live))
        writer.flush()
        table.merge()
        write({0: "log " + "table " * 40, 1: "merge", **dict.fromkeys(range(20, 25), "log log")})
        for text in ("log", "log log log", "merge log"):
            write({30: text})
        write({2: "gone"})
        writer.delete([2, 3])
        del live[2], live[3]
        check()
        writer.flush()
        check()
        write(dict.fromkeys(range(4, 9), "merge") | {i: f"log region{i}" for i in range(60, 64)})
        check()
        writer.flush()
        table.merge()  # in the base table, and in no index
        check()
        table.build_indexes()
        check()


def test_a_document_of_many_tokens_is_scored_alike_wherever_it_is(tmp_path: Path) -> None:
    long = "write " * 50_000 + "ahead log " * 25_000
    table = mw.create_table(tmp_path / "t", SCHEMA, primary_key="id")
    table.create_index("body", "FTS", **ANALYZER)
    queries = ("write", "ahead", "write log " * 1_000, {"phrase": {"query": "log ahead log"}})
    found = []
    with table.writer() as writer:
        writer.upsert(rows_of([long, "write ahead log", "ahead"]))
        for step in (writer.flush, table.merge, table.build_indexes, lambda: None):
            found.append([scores(table, query) for query in queries])
            step()
    assert [sorted(ranking) for ranking in found[0]] == [[0, 1], [0, 1, 2], [0, 1], [0]]
    assert found[1] == found[2] == found[3] == found[0]


def test_without_its_index_a_column_is_searched_with_the_default_analyzer(tmp_path: Path) -> None:
    """An index dropped from the base table, by us or by Lance: every row is still found."""
    texts = ["writing logs", "write log", "the logs", "merging", None, "log"]
    table, writer = table_of(tmp_path / "t", list(texts))
    assert ids(table, "log") == [1, 5]
    table.drop_index("body_idx")
    assert ids(table, "log") == [0, 1, 2, 5]  # Lance's default stems
    writer.close()
    never = mw.create_table(tmp_path / "never", SCHEMA, primary_key="id")
    with never.writer() as writer:
        writer.upsert(rows_of(list(texts)))
        assert scores(never, "log write") == scores(table, "log write")


def test_an_empty_table_and_a_deleted_corpus_have_nothing_to_find(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, primary_key="id")
    fuzzy = {"match": {"query": "x", "fuzziness": 1}}
    for _ in range(2):
        for query in ("log", {"phrase": {"query": "a b"}}, fuzzy):
            assert ids(table, query) == []
        table.create_index("body", "FTS", replace=True)
    with table.writer() as writer:
        writer.upsert(rows_of(["write ahead log", "log", "ahead"]))
        writer.delete([0, 1, 2])
        assert ids(table, "log") == []
        writer.upsert(rows_of(["log"], 1))
        assert ids(table, "log") == [1]


def test_columns_with_different_analyzers_are_not_combined(tmp_path: Path) -> None:
    """As in Lance: their tokens can't be compared."""
    table = mw.create_table(tmp_path / "t", SCHEMA, primary_key="id")
    rows = [{"id": 1, "title": "logs", "body": "ahead"}, {"id": 2, "title": "write", "body": "log"}]
    with table.writer() as writer:
        writer.upsert(rows, missing="null")
    combined, best = (
        {kind: {"query": "log ahead", "columns": ["title", "body"]}}
        for kind in ("combined_fields", "multi_match")
    )
    for column in ("title", "body"):
        table.create_index(column, "FTS", stem=True)
    assert ids(table, combined) == [1, 2]
    table.create_index("body", "FTS", stem=False, replace=True)
    with pytest.raises(mw.InvalidCallError, match="analyzers"):
        ids(table, combined)
    assert ids(table, best) == [1, 2]


def test_a_search_reads_what_its_consistency_and_its_version_show(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SMALL, primary_key="id")
    table.create_index("text", "FTS")
    with table.writer() as writer:
        writer.upsert(make_rows(1, text="log"))
        writer.flush()
        version = table.snapshot_regions()
        writer.upsert(make_rows(2, text="log"))
        writer.flush()
        writer.upsert(make_rows(1, text="merge"))
        for consistency, expected in {"eventual": [1], "manifest": [1, 2], "strong": [2]}.items():
            assert ids(table, "log", column="text", consistency=consistency) == expected
        then = mw.open_table(table.uri, version=version)
        assert ids(then, "log", column="text", consistency="strong") == [1]


def test_rows_come_whole_or_in_the_columns_asked_for(table: mw.Table) -> None:
    found = table.full_text_search("body", "log", 5)
    assert found.schema.names == [*SCHEMA.names, "_score"]
    expected = rows_of(list(TEXTS)).take(pa.array(LOGS))
    assert found.drop(["_score"]).sort_by("id").cast(SCHEMA) == expected
    found = table.full_text_search("body", "log", 5, columns=["title"])
    assert found.schema.names == ["title", "_score"]
