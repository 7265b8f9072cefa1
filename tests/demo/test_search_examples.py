"""Every file of sql_examples/search/, and the checks of the demo, over some docstrings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.documents import FEW_MODULES, load_documents
from demo.examples import Example
from demo.searching import Documents, check_searches, load_search_examples, run_search_example
from tests.each import each

EXAMPLES = load_search_examples()
PLANS = {
    "01_nearest_texts": ("KNNExec: base_table[gen=-1]", "index=v_idx(IVF_PQ)"),
    "03_filtered": ("FTSExec", "filter=[kind = 'class'"),
    "04_phrase": ("phrase(text",),
    "06_hybrid": ("FuseExec", "KNNExec", "GlobalBM25Exec"),
    "07_join": ("KNNExec", "DeduplicateExec"),
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Documents]:
    made = Documents(tmp_path_factory.mktemp("documents"), FEW_MODULES)
    with made.writer:
        yield made


@each("example", EXAMPLES)
def test_an_example_answers_with_live_rows(documents: Documents, example: Example) -> None:
    outcome = run_search_example(documents, example)
    assert outcome.problem is None
    for part in PLANS.get(example.name, ()):
        assert part in (outcome.plan or "")


def test_the_checks_of_the_demo_come_out_right(documents: Documents, tmp_path: Path) -> None:
    problems = [outcome.problem for outcome in check_searches(documents, tmp_path)]
    assert problems == [None] * 4


def test_examples_are_numbered_without_gaps() -> None:
    assert [int(example.name[:2]) for example in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))


def test_documents_are_the_same_every_time() -> None:
    documents = load_documents({"json"})
    assert set(documents["kind"].to_pylist()) == {"module", "class", "function", "topic"}
    assert {"json.dumps", "topic.lambda"} <= set(documents["id"].to_pylist())
    assert documents == load_documents({"json"})
