"""The part of the demo that searches: docstrings in a table that is written to meanwhile."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import datafusion
import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import memwal_sql as mw
from demo.checks import Outcome, plan_text
from demo.documents import TEXTS, load_documents
from demo.examples import FOLDER, Example, load_examples

QUESTION = "How do I parse a date and time from a string?"
_EXAMPLES = FOLDER / "search"
_QUESTIONS = 20
_K = 10
_TOLERANCE = 3e-6

DIMENSIONS = 64
VECTOR = pa.list_(pa.float32(), DIMENSIONS)
SCHEMA = TEXTS.append(pa.field("v", VECTOR))


class Documents:
    """A table of docstrings: two thirds in the base, the rest in generations and a MemTable, among
    them newer versions of a tenth of the base; and the live rows, as they should be."""

    def __init__(self, folder: Path, only: Collection[str] | None = None) -> None:
        """`only`: the documents of these top-level modules."""
        documents = load_documents(only)
        self.embedding = Embedding(documents["text"].to_pylist())
        self.live = self._with_vectors(documents)
        rows = self.live.num_rows
        base, newer = self.live.slice(0, rows * 2 // 3), self.live.slice(rows * 2 // 3)
        uri = str(folder / "docs")
        lance.write_dataset(self._outdated(base), uri)
        self.table = mw.enable(uri, primary_key="id", regions=[mw.bucket("id", 2)])
        self.table.create_index("text", "FTS")
        self.table.create_index("v", "IVF_PQ", metric="cosine", num_sub_vectors=32)
        self.writer = self.table.writer()
        for part in (base.slice(0, rows // 15), newer.slice(0, newer.num_rows // 2)):
            self.writer.upsert(part)
            self.writer.flush()
        self.writer.upsert(newer.slice(newer.num_rows // 2))
        self.context = datafusion.SessionContext()
        mw.register(self.context, "docs", self.table)

    def upsert(self, identifier: str, text: str) -> None:
        """Give a document a new text."""
        old = self.live.filter(pc.field("id") == identifier)
        new = old.set_column(3, SCHEMA.field("length"), pa.array([len(text)], pa.int32()))
        new = self._with_vectors(new.set_column(4, SCHEMA.field("text"), pa.array([text])))
        self.writer.upsert(new)
        self.live = pa.concat_tables([self.live.filter(pc.field("id") != identifier), new])

    def delete_module(self, module: str) -> int:
        """Delete the documents of a module; how many there were."""
        gone = self.live.filter(pc.field("module") == module)
        self.writer.delete(gone.select(["id"]))
        self.live = self.live.filter(pc.field("module") != module)
        return int(gone.num_rows)

    def ask(self, sql: str) -> pa.Table:
        """The answer to a query, in which `$q` is the vector of the question."""
        return self.context.sql(sql, q=self.embedding.of([QUESTION])[0].tolist()).to_arrow_table()

    def nearest(self, vector: np.ndarray, k: int) -> set[str]:
        """The ids of the `k` live rows nearest to a vector, by brute force."""
        vectors = self.live["v"].combine_chunks().flatten().to_numpy().reshape(-1, len(vector))
        return set(self.live["id"].take(np.argsort(-(vectors @ vector))[:k]).to_pylist())

    def _outdated(self, rows: pa.Table) -> pa.Table:
        count = self.live.num_rows // 15
        old = [f"an old text, number {n}" for n in range(count)]
        texts = pa.array([*old, *rows["text"].to_pylist()[count:]])
        return rows.set_column(4, SCHEMA.field("text"), texts)

    def _with_vectors(self, rows: pa.Table) -> pa.Table:
        rows = rows.select(TEXTS.names)
        column = self.embedding.column(rows["text"].to_pylist())
        return rows.append_column(SCHEMA.field("v"), column).combine_chunks()


def load_search_examples() -> list[Example]:
    """The files of sql_examples/search/."""
    return load_examples(_EXAMPLES)


def run_search_example(documents: Documents, example: Example) -> Outcome:
    """Explain and run one file; it has to answer with rows that are live."""
    plan = plan_text(documents.ask(f"EXPLAIN {example.sql}"))
    start = time.perf_counter()
    answer = documents.ask(example.sql)
    seconds = time.perf_counter() - start
    key_column = "id" if "id" in answer.column_names else "module"
    strange = set(answer[key_column].to_pylist()) - set(documents.live[key_column].to_pylist())
    problem = f"rows that are not live: {strange}" if strange else None
    return Outcome(example.title, seconds, problem or _none(answer), plan, answer)


def check_searches(documents: Documents, folder: Path) -> Iterator[Outcome]:
    """Compare vector searches with brute force, and scores with one Lance index over the live
    rows; then change a docstring and delete a module, and search at once."""
    yield _check_vectors(documents)
    yield _check_scores(documents, folder / "whole")
    start = time.perf_counter()
    documents.upsert("json.dumps", "Turn a walrus into text.")
    result = documents.table.full_text_search("text", "walrus", 1, columns=["id"])
    problem = None if result["id"].to_pylist() == ["json.dumps"] else f"found {result.to_pylist()}"
    seconds = time.perf_counter() - start
    yield Outcome("json.dumps: a new docstring, found at once", seconds, problem)
    start = time.perf_counter()
    count = documents.delete_module("datetime")
    query = "SELECT id FROM hybrid_search('docs', 'v', $q, 'text', 'date time', 100)"
    unmatched = [
        name for name in documents.ask(query)["id"].to_pylist() if name.startswith("datetime")
    ]
    problem = f"found {unmatched}" if unmatched else None
    title = f"module datetime: {count} texts deleted, none found any more"
    yield Outcome(title, time.perf_counter() - start, problem)


def _check_vectors(documents: Documents) -> Outcome:
    chosen = np.linspace(0, documents.live.num_rows - 1, _QUESTIONS).astype(int)
    texts = documents.live["text"].take(pa.array(chosen)).to_pylist()
    hits, seconds = 0, 0.0
    for vector in documents.embedding.of([text[: len(text) // 2] for text in texts]):
        if not vector.any():
            continue
        expected = documents.nearest(vector, _K)
        start = time.perf_counter()
        result = documents.table.vector_search("v", vector, _K, columns=["id"])
        seconds += time.perf_counter() - start
        hits += len(expected.intersection(result["id"].to_pylist())) - (_K - len(expected))
        if result.num_rows != _K:
            return Outcome("vector searches", seconds, f"{result.num_rows} rows, not {_K}")
    recall = hits / (_QUESTIONS * _K)
    problem = None if recall > 0.9 else "most of the nearest are missing"
    title = f"{_QUESTIONS} vector searches: {recall:.0%} of the {_K} nearest"
    return Outcome(title, seconds, problem)


def _check_scores(documents: Documents, uri: Path) -> Outcome:
    whole = lance.write_dataset(documents.live, str(uri))
    whole.create_scalar_index("text", "INVERTED")
    seconds = 0.0
    for text in ("regular expression", "thread queue", "array of numbers", "old text"):
        expected = whole.to_table(columns=["id", "_score"], full_text_query=text, limit=_K)
        start = time.perf_counter()
        result = documents.table.full_text_search("text", text, _K, columns=["id"])
        seconds += time.perf_counter() - start
        ours, theirs = result["_score"].to_numpy(), expected["_score"].to_numpy()
        if len(ours) != len(theirs) or not np.allclose(ours, theirs, rtol=0, atol=_TOLERANCE):
            return Outcome("full-text scores", seconds, f"{text!r}: {ours} instead of {theirs}")
    return Outcome("4 full-text searches: scores of one index over it all", seconds, None)


def _none(answer: pa.Table) -> str | None:
    return None if answer.num_rows else "no rows"


class Embedding:
    """Learned once from some texts; the same texts give the same vectors."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._model = make_pipeline(
            TfidfVectorizer(sublinear_tf=True, stop_words="english", max_features=20_000),
            TruncatedSVD(DIMENSIONS, n_iter=2, random_state=0),
            Normalizer(copy=False),
        )
        self._model.fit(texts)

    def of(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """(texts, 64) float32, each of length 1; zero for a text of unknown words."""
        vectors: npt.NDArray[np.float32] = self._model.transform(texts).astype(np.float32)
        return vectors

    def column(self, texts: Sequence[str]) -> pa.FixedSizeListArray:
        """The same as an Arrow column."""
        return pa.FixedSizeListArray.from_arrays(pa.array(self.of(texts).ravel()), DIMENSIONS)
