"""Analyzers give the tokens of Lance's own index, for every parameter."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader

from exec_nodes.base.errors import UnsupportedError
from exec_nodes.postings import analyzer as module
from exec_nodes.postings.analyzer import DEFAULTS, Analyzer
from exec_nodes.postings.lance_index import open_index
from exec_nodes.resident.store import ResidentStore
from tests.each import each
from tests.exec_nodes.text.twin import decoded

TEXTS = [
    "The quick brown foxes JUMPED over the lazy dogs; running runs ran",
    "fooBar2Baz snake_case x->y a.b.c f(x) 3.14 100% C++",
    "Ünïcode Élan naïve coöperate Straße ΣΊΣΥΦΟΣ ﬁne",
    "日本語のテキスト ภาษาไทย 한국어 中文分词 עברית العربية हिन्दी",
    "a " + "long" * 20 + " b\nnew\tline\u00a0blank\u2003space\u200bzero",
    "emoji 👩‍👩‍👧 e\u0301 combining d'accord can't O'Neil",
    "the of and",
    "",
    "word " * 300,
]
PARAMETERS: list[dict[str, Any]] = [
    {},
    {"base_tokenizer": "whitespace"},
    {"base_tokenizer": "raw"},
    {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 4},
    {"base_tokenizer": "ngram", "prefix_only": True},
    {"base_tokenizer": "icu"},
    {"base_tokenizer": "icu/split"},
    {"language": "German"},
    {"max_token_length": 5},
    {"max_token_length": None},
    {"lower_case": False},
    {"stem": False},
    {"remove_stop_words": False},
    {"custom_stop_words": ["quick", "word"]},
    {"ascii_folding": False},
    {"analyzer": "code", "block_size": 128, "format_version": 3},
    {
        "analyzer": "code",
        "split_identifiers": True,
        "split_on_numerics": False,
        "preserve_original": False,
        "index_operators": True,
        "block_size": 128,
        "format_version": 3,
    },
]


@each("parameters", PARAMETERS)
def test_tokens_are_those_of_an_index_with_these_parameters(
    parameters: dict[str, Any], tmp_path: Path
) -> None:
    dataset = lance.write_dataset(pa.table({"t": TEXTS}), tmp_path)
    dataset.create_scalar_index("t", "INVERTED", **parameters)
    analyzer = Analyzer.of(stored_parameters(tmp_path))
    segments = open_index(lance.dataset(tmp_path), "t", analyzer, None, ResidentStore())
    assert segments is not None
    (partition,) = segments[0].partitions
    indexed = [Counter[str]() for _ in TEXTS]
    for token in partition.tokens():
        postings = partition.postings(token)
        assert postings is not None
        for document, often in zip(*decoded(postings), strict=True):
            indexed[int(partition.row_ids[document])][token] = often
    assert [Counter(analyzer.tokens(text)) for text in TEXTS] == indexed
    tokens, lengths = analyzer.tokens_of(pa.array(TEXTS))
    ends = np.cumsum(lengths)
    pieces = [tokens[end - n : end] for end, n in zip(ends, lengths, strict=True)]
    assert pieces == [analyzer.tokens(text) for text in TEXTS]


def test_defaults_are_lance_s_own(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"t": TEXTS}), tmp_path)
    dataset.create_scalar_index("t", "INVERTED")
    stored = stored_parameters(tmp_path)
    assert Analyzer.of(stored) == Analyzer.of({})
    assert stored.items() >= DEFAULTS.items()


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
batches = st.lists(st.one_of(st.none(), words), max_size=12)


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["simple", "whitespace"])
@given(batch=batches)
@settings(max_examples=150, deadline=None)
def test_texts_tokenized_together_give_the_tokens_of_each(
    tokenizer: str, batch: list[str | None]
) -> None:
    analyzer = Analyzer.of({"base_tokenizer": tokenizer})
    tokens, lengths = analyzer.tokens_of(pa.array(batch, pa.string()))
    each = [analyzer.tokens(text or "") for text in batch]
    assert tokens == [token for found in each for token in found]
    assert lengths.tolist() == [len(found) for found in each]


def test_a_text_that_has_the_dividing_word_is_told_apart_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    analyzer = Analyzer.of({})
    monkeypatch.setattr(module, "_blank", lambda _: ("fence", "fenc"))
    tokens, lengths = analyzer.tokens_of(pa.array(["a fence", "b", "fences built", None]))
    assert tokens == ["fenc", "b", "fenc", "built"]
    assert lengths.tolist() == [1, 1, 2, 0]


def test_null_has_no_token_where_an_empty_text_is_one() -> None:
    tokens, lengths = Analyzer.of({"base_tokenizer": "raw"}).tokens_of(pa.array(["", None, "a b"]))
    assert (tokens, lengths.tolist()) == (["", "a b"], [1, 0, 1])


def test_no_texts_are_told_apart_where_the_dividing_word_is_dropped() -> None:
    analyzer = Analyzer.of({"max_token_length": 4})
    tokens, lengths = analyzer.tokens_of(pa.array(["one two three", "six"]))
    assert (tokens, lengths.tolist()) == (["one", "two", "six"], [2, 1])


def test_parameters_that_say_nothing_of_tokens_make_no_other_analyzer() -> None:
    parameters = {"with_position": True, "block_size": 256, "lance_tokenizer": "text"}
    assert Analyzer.of(parameters) == Analyzer.of({"document_granularity": "row"})
    assert Analyzer.of({"analyzer": "code"}) == Analyzer.of({"base_tokenizer": "code"})


@pytest.mark.parametrize(
    "parameters", [{"lance_tokenizer": "json"}, {"document_granularity": "list_element"}], ids=str
)
def test_texts_that_are_no_plain_texts_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="index whole texts"):
        Analyzer.of(parameters)


def stored_parameters(table: Path) -> dict[str, Any]:
    (file,) = table.glob("_indices/*/metadata.lance")
    found: dict[str, Any] = json.loads(
        LanceFileReader(str(file)).metadata().schema.metadata[b"params"]
    )
    return found
