"""The native mount: what a Python node says is what DataFusion gets."""

from __future__ import annotations

import datetime
import decimal
import threading
from dataclasses import replace
from typing import Any
from weakref import ref

import datafusion
import pyarrow as pa
import pytest

from exec_nodes.base.errors import RetryError
from exec_nodes.node import Metrics, Statistics
from memwal_native import MountedTable, quick_tables
from memwal_sql.session.errors import memwal_errors, original_error
from tests.model.waiting import eventually, reached
from tests.sql.fakes import FakeProvider, NodeProvider, Rows

PEOPLE = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "team": pa.array([f"t{i % 7}" for i in range(1000)]),
        "score": pa.array([None if i % 10 == 0 else i / 2 for i in range(1000)], pa.float64()),
    }
)
TEAMS = pa.table({"name": [f"t{i}" for i in range(7)], "city": list("ABCDEFG")})


def mounted(people: FakeProvider) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    context.register_table("people", MountedTable(people))
    context.register_table("teams", MountedTable(FakeProvider(TEAMS)))
    context.register_record_batches("people_plain", [PEOPLE.to_batches()])
    context.register_record_batches("teams_plain", [TEAMS.to_batches()])
    return context


@pytest.fixture
def people() -> FakeProvider:
    return FakeProvider(PEOPLE, partitions=3, rows_a_batch=100)


@pytest.fixture
def ctx(people: FakeProvider) -> datafusion.SessionContext:
    return mounted(people)


QUERIES = [
    "SELECT * FROM people",
    "SELECT count(*) AS n FROM people",
    "SELECT count(*) AS n FROM people WHERE id > 500",
    "SELECT id FROM people WHERE team = 't3' AND score > 100.5",
    "SELECT id FROM people WHERE id IN (1, 5, 900, 5000)",
    "SELECT id FROM people WHERE id NOT IN (1, 5, 900) AND team LIKE '%1'",
    "SELECT id FROM people WHERE score IS NULL OR id BETWEEN 7 AND 9",
    "SELECT id FROM people WHERE NOT (id < 990)",
    "SELECT id FROM people WHERE CASE WHEN id > 5 THEN team = 't1' ELSE true END",
    "SELECT id FROM people WHERE upper(team) = 'T2'",
    "SELECT team, count(*) AS n, sum(score) AS s FROM people GROUP BY team",
    "SELECT team, avg(score) AS a FROM people GROUP BY team HAVING count(*) > 142",
    "SELECT p.id, t.city FROM people p JOIN teams t ON p.team = t.name WHERE p.id < 50",
    "SELECT p.id, t.city FROM people p JOIN teams_plain t ON p.team = t.name",
    "SELECT a.id FROM people a JOIN people b ON a.id = b.id + 1 WHERE b.team = 't0'",
    "SELECT p.id FROM people p LEFT JOIN teams t ON p.team = t.name AND t.city = 'A'",
    "SELECT id FROM people WHERE id = (SELECT max(id) FROM people)",
    "SELECT id FROM people WHERE team IN (SELECT name FROM teams WHERE city > 'E')",
    "SELECT id FROM people p WHERE EXISTS (SELECT 1 FROM teams t WHERE t.name = p.team)",
    "SELECT id, row_number() OVER (PARTITION BY team ORDER BY id) AS r FROM people",
    "SELECT id, score - lag(score) OVER (ORDER BY id) AS d FROM people",
    "SELECT id FROM people WHERE id < 3 UNION ALL SELECT id FROM people WHERE id > 997",
    "SELECT team FROM people UNION SELECT name FROM teams",
    "SELECT id FROM people ORDER BY score DESC NULLS LAST, id LIMIT 5",
    "SELECT id FROM people ORDER BY id LIMIT 5 OFFSET 700",
    "SELECT DISTINCT team FROM people",
    "WITH best AS (SELECT team, max(score) AS m FROM people GROUP BY team) "
    "SELECT p.id FROM people p JOIN best b ON p.team = b.team AND p.score = b.m",
    "SELECT 1 AS one FROM people WHERE id < 3",
]


def rows(context: datafusion.SessionContext, query: str) -> list[tuple[Any, ...]]:
    found = [tuple(row.values()) for row in context.sql(query).to_pylist()]
    return sorted(found, key=repr)


@pytest.mark.parametrize("is_quick", [True, False])
def test_a_mounted_table_answers_as_an_ordinary_one(people: FakeProvider, is_quick: bool) -> None:
    """By private layouts of the tried version, and by public functions in any other one."""
    before = quick_tables(is_quick)
    try:
        context = mounted(people)
    finally:
        quick_tables(before)
    assert before
    for query in QUERIES:
        plain = query.replace("people", "people_plain").replace("teams ", "teams_plain ")
        expected = rows(context, plain)
        for answer in ("exact", "inexact", "unsupported"):
            people.answer = answer
            assert rows(context, query) == expected, (query, answer)
    people.answer = "exact"
    people.offered.clear()
    query = "SELECT p.team FROM people AS p WHERE p.id = 42 AND upper(p.team) = 'T0' LIMIT 7"
    context.sql(query).collect()
    projection, filters, limit = people.scans[-1]
    assert projection == [1] and filters == people.offered[:2] and limit == 7
    assert not any("p." in str(offered) for offered in people.offered)
    if not is_quick:
        deep = "id" + " + id - 2 * id" * 50 + " < 0"
        with pytest.raises(Exception, match="recursion limit"):
            context.sql(f"SELECT id FROM people WHERE {deep}").collect()


def test_the_limit_is_not_pushed_below_a_filter_that_is_not_exact(
    ctx: datafusion.SessionContext, people: FakeProvider
) -> None:
    people.answer = "inexact"
    assert len(rows(ctx, "SELECT id FROM people WHERE id >= 990 LIMIT 7")) == 7
    assert people.scans[-1][2] is None


def test_an_unknown_answer_to_a_filter_is_an_error(
    ctx: datafusion.SessionContext, people: FakeProvider
) -> None:
    people.answer = "perhaps"
    with pytest.raises(Exception, match="perhaps"):
        ctx.sql("SELECT id FROM people WHERE id = 1").collect()


def test_a_count_of_an_exact_number_of_rows_reads_nothing() -> None:
    def fail() -> None:
        raise AssertionError("executed")

    node = Rows(pa.schema([]), ((fail,),), known=Statistics(12345, True, 99))
    context = datafusion.SessionContext()
    provider = FakeProvider(PEOPLE)
    provider.scan = lambda *_: node  # type: ignore[method-assign]
    context.register_table("t", MountedTable(provider))
    assert context.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 12345}]


EVERYTHING = {
    "i8": pa.array([1, None, -3], pa.int8()),
    "u64": pa.array([1, None, 2**64 - 1], pa.uint64()),
    "f16": pa.array([1.5, None, 2.5], pa.float16()),
    "flag": pa.array([True, None, False]),
    "text": pa.array(["a", None, "\u00fc"]),
    "large_text": pa.array(["a", None, ""], pa.large_string()),
    "view": pa.array(["a", None, "x" * 40], pa.string_view()),
    "raw": pa.array([b"a", None, b""], pa.binary()),
    "large_raw": pa.array([b"a", None, b""], pa.large_binary()),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "day": pa.array([datetime.date(2024, 1, 31), None, datetime.date(1960, 1, 1)]),
    "day64": pa.array([datetime.date(2024, 1, 31), None, None], pa.date64()),
    "time": pa.array([1, None, 3], pa.time64("us")),
    "moment": pa.array([1, None, -3], pa.timestamp("ns")),
    "zoned": pa.array([1, None, -3], pa.timestamp("ms", "Europe/Amsterdam")),
    "span": pa.array([1, None, 3], pa.duration("s")),
    "exact": pa.array([decimal.Decimal("1.25"), None, decimal.Decimal("-9.99")]),
    "wide": pa.array([decimal.Decimal("1.25"), None, None], pa.decimal256(50, 2)),
    "list": pa.array([[1, None], None, []], pa.list_(pa.int32())),
    "large_list": pa.array([[1, None], None, []], pa.large_list(pa.int32())),
    "vector": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "struct": pa.array([{"a": 1, "b": [{"c": "x"}]}, None, {"a": None, "b": None}]),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array(["a", None, "a"]).dictionary_encode(),
    "nothing": pa.nulls(3),
}


def test_every_column_type_comes_through_unchanged() -> None:
    table = pa.table(EVERYTHING)
    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(FakeProvider(table)))
    found = context.sql("SELECT * FROM t").to_arrow_table()
    assert found.to_pylist() == table.to_pylist()
    assert found.schema.types == table.schema.types
    # A slice has an offset that the C interface must carry.
    context.register_table("s", MountedTable(FakeProvider(table.slice(1))))
    assert context.sql("SELECT * FROM s").to_arrow_table().to_pylist() == table[1:].to_pylist()


@pytest.mark.parametrize("partitions", [1, 2, 64])
def test_an_empty_table_has_no_rows(partitions: int) -> None:
    context = datafusion.SessionContext()
    empty = FakeProvider(PEOPLE.schema.empty_table(), partitions=partitions)
    context.register_table("t", MountedTable(empty))
    assert rows(context, "SELECT * FROM t WHERE id > 1") == []
    assert rows(context, "SELECT count(*) FROM t") == [(0,)]


def failing(*before: pa.RecordBatch) -> datafusion.SessionContext:
    def fail() -> None:
        raise RetryError("region bucket=3 was merged meanwhile: run the query again")

    node = Rows(PEOPLE.schema, ((*before, fail),))
    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(NodeProvider(node)))
    return context


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_an_error_in_a_stream_comes_back_as_the_original(batches: int) -> None:
    context = failing(*PEOPLE.to_batches() * batches)
    with pytest.raises(Exception, match="bucket=3 was merged") as raised:
        context.sql("SELECT * FROM t").collect()
    assert isinstance(original_error(raised.value), RetryError)
    with pytest.raises(RetryError, match="bucket=3 was merged"), memwal_errors():
        context.sql("SELECT * FROM t").collect()


def test_an_error_while_planning_comes_back_as_the_original(
    ctx: datafusion.SessionContext, people: FakeProvider
) -> None:
    def fail(*_: object) -> None:
        raise RetryError("no snapshot of uri-17")

    people.scan = fail  # type: ignore[assignment, method-assign]
    with pytest.raises(RetryError, match="uri-17"), memwal_errors():
        ctx.sql("SELECT * FROM people").collect()


def test_errors_of_others_pass_unchanged() -> None:
    with pytest.raises(Exception, match="nobody") as raised, memwal_errors():
        datafusion.SessionContext().sql("SELECT * FROM nobody")
    assert original_error(raised.value) is None


@pytest.mark.parametrize(
    "batch",
    [
        PEOPLE.select(["team", "id", "score"]).to_batches()[0],
        PEOPLE.select(["id", "team"]).to_batches()[0],
        PEOPLE.set_column(0, "id", PEOPLE["id"].cast(pa.int32())).to_batches()[0],
    ],
    ids=["order", "missing", "type"],
)
def test_a_batch_that_is_not_of_the_declared_schema_is_refused(batch: pa.RecordBatch) -> None:
    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(NodeProvider(Rows(PEOPLE.schema, ((batch,),)))))
    with pytest.raises(Exception, match=r"declared|expected"):
        context.sql("SELECT * FROM t").collect()


def test_something_else_than_a_batch_is_refused() -> None:
    provider = FakeProvider(PEOPLE)
    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(provider))
    provider.scan = lambda *_: "a node"  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(Exception, match="no attribute"):
        context.sql("SELECT * FROM t").collect()


def explain(context: datafusion.SessionContext, query: str) -> str:
    plans = context.sql(f"EXPLAIN {query}").to_pylist()
    return str(plans[-1]["plan"])


def test_explain_shows_every_node_and_nothing_between() -> None:
    leaves = tuple(
        Rows(PEOPLE.schema, (), f"ScanExec: base_table[gen={n}], filter=[]") for n in range(3)
    )
    union = Rows(PEOPLE.schema, (), "UnionExec", leaves)
    label = "DeduplicateExec: partition_by=[id], order_by=[_gen DESC, _rowaddr DESC]"
    root = Rows(PEOPLE.schema, tuple((b,) for b in PEOPLE.to_batches() * 2), label, (union,))
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(8))
    context.register_table("t", MountedTable(NodeProvider(root)))
    lines = explain(context, "SELECT id, team, score FROM t ORDER BY id").splitlines()
    at = next(n for n, line in enumerate(lines) if "DeduplicateExec" in line)
    depth = len(lines[at]) - len(lines[at].lstrip())
    assert [line[depth:] for line in lines[at : at + 6]] == [
        f"FFI_ExecutionPlan: {label}, number_of_children=1",
        "  FFI_ExecutionPlan: UnionExec, number_of_children=3",
        *(
            f"    FFI_ExecutionPlan: ScanExec: base_table[gen={n}], filter=[], number_of_children=0"
            for n in range(3)
        ),
    ]
    assert len(lines) == at + 5
    assert context.sql("SELECT * FROM t").to_arrow_table().num_rows == 2000


def test_explain_analyze_shows_the_metrics_of_inner_nodes_too() -> None:
    leaf = Rows(PEOPLE.schema, (), "TakeLastExec")
    counters: Metrics = leaf.metrics
    counters.add(bloom_hits=3, bloom_skips=4, output_rows=5, wait_ns=2_000_000)
    root = Rows(PEOPLE.schema, (tuple(PEOPLE.to_batches()),), "CoalesceFirstExec", (leaf,))
    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(NodeProvider(root)))
    lines = explain(context, "ANALYZE SELECT * FROM t").splitlines()
    outer = next(line for line in lines if "CoalesceFirstExec" in line)
    inner = next(line for line in lines if "TakeLastExec" in line)
    assert "output_rows=1.00 K" in outer or "output_rows=1000" in outer
    assert "output_batches=1" in outer
    assert "elapsed_compute=" in outer
    assert "output_bytes=" in outer
    for metric in ("output_rows=5", "bloom_hits=3", "bloom_skips=4", "wait=2.00ms"):
        assert metric in inner


def test_explain_executes_nothing() -> None:
    def fail() -> None:
        raise AssertionError("executed")

    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(NodeProvider(Rows(PEOPLE.schema, ((fail,),)))))
    assert "RowsExec" in explain(context, "SELECT * FROM t")


def test_a_stream_that_is_given_up_closes_its_generator() -> None:
    closed = threading.Event()

    class Endless(Rows):
        def _run(self, partition: int) -> Any:
            try:
                while True:
                    yield PEOPLE.to_batches()[0]
            finally:
                closed.set()

    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(NodeProvider(Endless(PEOPLE.schema, ((),)))))
    stream = context.sql("SELECT * FROM t").execute_stream()
    assert stream.next().to_pyarrow().num_rows > 0
    del stream
    reached(closed)


ENDS = {
    "read": lambda frame: frame.collect(),
    "not run": lambda frame: frame.execution_plan(),
    "read halfway": lambda frame: frame.execute_stream().next(),
    "explained": lambda frame: frame.explain(),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_a_query_held_goes_without_another_one(end: str) -> None:
    """It stayed until the library was called again: a snapshot, rows in memory, locks of files."""
    held: list[ref[Any]] = []

    class Noted(FakeProvider):
        def scan(self, *asked: Any) -> Any:
            leaf, node = Rows(TEAMS.schema, ()), super().scan(*asked)
            root = replace(node, inputs=(leaf,))
            held.extend([ref(leaf), ref(root)])
            return root

    context = datafusion.SessionContext()
    provider = Noted(PEOPLE, rows_a_batch=10)
    context.register_table("t", MountedTable(provider))
    ENDS[end](context.sql("SELECT * FROM t WHERE id > 3"))
    held.append(ref(provider))
    context.deregister_table("t")
    del provider, context
    eventually(lambda: not any(one() for one in held))


def test_streams_read_halfway_keep_no_thread_from_others() -> None:
    """There are at most 512 threads for all queries of a process."""
    halfway = datafusion.SessionContext()
    endless = Rows(PEOPLE.schema, (tuple(PEOPLE.to_batches()) * 8,))
    halfway.register_table("t", MountedTable(NodeProvider(endless)))
    others = FakeProvider(TEAMS)
    other = datafusion.SessionContext()
    other.register_table("t", MountedTable(others))
    through = threading.Event()

    def work() -> None:
        streams = [halfway.sql("SELECT * FROM t").execute_stream() for _ in range(520)]
        for stream in streams:
            assert stream.next().to_pyarrow().num_rows == 1000
        assert rows(other, "SELECT count(name) FROM t") == [(7,)]
        other.sql("INSERT INTO t VALUES ('t7', 'H')").collect()
        assert [table.num_rows for table in others.inserted] == [1]
        through.set()
        assert len(list(streams[0])) == 7

    threading.Thread(target=work, daemon=True).start()
    reached(through)


@pytest.mark.parametrize("times", [24, 45])
def test_a_filter_that_nests_too_deep_to_be_offered_is_applied(
    ctx: datafusion.SessionContext, people: FakeProvider, times: int
) -> None:
    deep = "id" + " + id - 2 * id" * times + " < 0"
    query = f"SELECT id FROM people WHERE team <> 't1' AND {deep} ORDER BY id"
    assert rows(ctx, query) == rows(ctx, query.replace("people", "people_plain")) != []
    assert people.scans[-1][1] == []
