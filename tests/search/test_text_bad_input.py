"""What is asked wrongly, and texts at the edges: a clear error or the right answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import InvalidCallError
from tests.each import each

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("body", pa.string())])
TITLE_AND_BODY = [pa.field("title", pa.string()), pa.field("body", pa.string())]
ANALYZER = {"base_tokenizer": "simple", "stem": False, "remove_stop_words": True}


def table_of(uri: Path, texts: list[str | None], **analyzer: Any) -> mw.Table:
    """A third of the texts is in the base table, a third flushed, and a third in memory."""
    table = mw.create_table(str(uri), SCHEMA, primary_key="id")
    table.create_index("body", "FTS", **(analyzer or ANALYZER))
    rows = pa.table([pa.array(range(len(texts)), pa.int64()), pa.array(texts, pa.string())], SCHEMA)
    third = len(texts) // 3
    with table.writer() as writer:
        for start, length in ((0, third), (third, third), (2 * third, len(texts))):
            writer.upsert(rows.slice(start, length))
            if start < 2 * third:
                writer.flush()
            if not start:
                table.merge()
    return table


def ids(table: mw.Table, query: Any, k: int = 10, **options: Any) -> list[int]:
    found: list[int] = table.full_text_search("body", query, k, **options)["id"].to_pylist()
    return found


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mw.Table:
    texts = ["write ahead log", "the of a", "log", None, "merge", "", "key and row", "log log", "."]
    return table_of(tmp_path_factory.mktemp("plain") / "table", texts)


@each("query", ["", " ", "the", "of the a", "?!", "\N{COMBINING ACUTE ACCENT}"])
def test_a_query_without_tokens_finds_nothing(table: mw.Table, query: str) -> None:
    assert ids(table, query) == []


@each(
    "arguments, named",
    [
        ({"column": "author", "query": "log"}, "author"),
        ({"column": "id", "query": "log"}, "id"),
        ({"column": "body", "query": 3}, "3"),
        ({"column": "body", "query": None}, "None"),
        ({"column": "body", "query": "log", "k": 0}, "0"),
        ({"column": "body", "query": "log", "k": -1}, "-1"),
        ({"column": "body", "query": "log", "k": 1.5}, "1.5"),
        ({"column": "body", "query": "log", "operator": "XOR"}, "XOR"),
        ({"column": "body", "query": "log", "fuzziness": -1}, "-1"),
        ({"column": "body", "query": "log", "boost": float("nan")}, "nan"),
        ({"column": "body", "query": "log", "nprobes": 3}, "nprobes"),
        ({"column": "body", "query": {"march": {"query": "log"}}}, "march"),
        ({"column": "body", "query": '{"match": '}, "JSON"),
        ({"column": "body", "query": "log", "columns": ["author"]}, "author"),
        ({"column": "body", "query": "log", "filter": "author = 3"}, "author"),
    ],
)
def test_what_is_asked_wrongly_is_refused_with_its_name(
    table: mw.Table, arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidCallError, match=named):
        table.full_text_search(**arguments)


def test_a_text_like_sql_or_a_pattern_is_a_text(table: mw.Table) -> None:
    for query in ("log' OR 1=1 --", "log*", "%log%", "log\x00", "log AND NOT write", '"log"'):
        assert 2 in ids(table, query)


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
    table = table_of(tmp_path / "table", texts, **analyzer)
    for place, (_, query) in enumerate(SCRIPTS.values()):
        assert ids(table, query) == [place], query
        assert place in ids(table, texts[place].split()[0], fuzziness=1), query
        assert ids(table, {"phrase": {"query": texts[place]}}) == [place], query


def test_a_document_of_a_million_tokens_is_found_and_scored(tmp_path: Path) -> None:
    """Once in memory, once flushed, once in the base table: the same score."""
    long = "write " * 500_000 + "ahead log " * 250_000
    table = mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key="id")
    table.create_index("body", "FTS", **ANALYZER)
    queries = ("write", "ahead", {"phrase": {"query": "log ahead log"}})
    with table.writer() as writer:
        writer.upsert(pa.table([[1, 2, 3], [long, "write ahead log", "ahead"]], schema=SCHEMA))
        found = [[search(table, query) for query in queries]]
        writer.flush()
        found.append([search(table, query) for query in queries])
        table.merge()
        found.append([search(table, query) for query in queries])
        table.build_indexes()
        found.append([search(table, query) for query in queries])
    assert [row for row, _ in found[0][0]] == [1, 2]
    assert [row for row, _ in found[0][2]] == [1]
    assert found[1] == found[2] == found[3] == found[0]


def search(table: mw.Table, query: Any) -> list[tuple[int, float]]:
    rows = table.full_text_search("body", query)
    return list(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))


def test_a_query_of_very_many_tokens_is_answered(table: mw.Table) -> None:
    assert sorted(ids(table, "write log unknown " * 50_000)) == [0, 2, 7]


def test_without_its_index_a_column_is_searched_with_the_default_analyzer(tmp_path: Path) -> None:
    """An index dropped from the base table, by us or by Lance: every row is still found."""
    texts = ["writing logs", "write log", "the logs", "merging", None, "log"]
    table = table_of(tmp_path / "table", texts)
    assert sorted(ids(table, "log")) == [1, 5]
    table.drop_index("body_idx")
    # Lance's default stems: logs are found by log.
    assert sorted(ids(table, "log")) == [0, 1, 2, 5]
    never = mw.create_table(str(tmp_path / "never"), SCHEMA, primary_key="id")
    with never.writer() as writer:
        writer.upsert(pa.table([range(len(texts)), texts], schema=SCHEMA))
        assert dict(search(never, "log write")) == dict(search(table, "log write"))


def test_an_empty_table_finds_nothing(tmp_path: Path) -> None:
    table = mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key="id")
    for _ in range(2):
        for query in (
            "log",
            {"phrase": {"query": "a b"}},
            {"match": {"query": "x", "fuzziness": 1}},
        ):
            assert ids(table, query) == []
        table.create_index("body", "FTS", replace=True)


def test_a_deleted_corpus_finds_nothing_and_divides_by_nothing(tmp_path: Path) -> None:
    table = table_of(tmp_path / "table", ["write ahead log", "log", "ahead"])
    with table.writer() as writer:
        writer.delete(pa.table({"id": [0, 1, 2]}))
        assert ids(table, "log") == []
        writer.upsert(pa.table([[1], ["log"]], schema=SCHEMA))
        assert ids(table, "log") == [1]


def test_columns_with_different_analyzers_are_not_combined(tmp_path: Path) -> None:
    """As in Lance: their tokens can't be compared."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *TITLE_AND_BODY])
    table = mw.create_table(str(tmp_path / "table"), schema, primary_key="id")
    with table.writer() as writer:
        writer.upsert(pa.table([[1, 2], ["logs", "write"], ["ahead", "log"]], schema=schema))
        query = {"combined_fields": {"query": "log ahead", "columns": ["title", "body"]}}
        table.create_index("title", "FTS", stem=True)
        table.create_index("body", "FTS", stem=True)
        assert sorted(ids(table, query)) == [1, 2]
        table.create_index("body", "FTS", stem=False, replace=True)
        with pytest.raises(InvalidCallError, match="analyzers"):
            ids(table, query)
        best = {"multi_match": {"query": "log ahead", "columns": ["title", "body"]}}
        assert sorted(ids(table, best)) == [1, 2]
