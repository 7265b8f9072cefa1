"""A relation that is used twice, in one statement or in several, has all of its rows every time.

Spark 4.3 plans a Python source once for all uses of a relation, so whatever one use pushed into the
reader would be missing from the others. What DataFusion says of the same rows in memory is right.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import memwal_sql as mw
from tests.soak import IS_SOAK, usual
from tests.spark.conftest import needs_jar
from tests.spark.frames import load, settings

EARLY, SWITCH = {"version": "early"}, ("true", "false")
SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string(), "n": pa.int64()})
# `t` is the table, `old` an earlier state of it, `some` a view of a view, `kept` a cached frame.
ALWAYS = {
    "a self join, both sides filtered": """
        SELECT a.id AS one, b.id AS other FROM t a JOIN t b ON a.n = b.n
        WHERE a.id = 3 AND b.val = 'b'""",
    "a union of some and all": """
        SELECT count(*) FROM t WHERE id = 3 UNION ALL SELECT count(*) FROM t""",
    "a CTE used twice, and its table": """
        WITH c AS (SELECT * FROM t WHERE id < 20)
        SELECT x.id, y.n, (SELECT count(*) FROM t) AS times
        FROM c x JOIN c y ON x.n = y.n WHERE x.id = 3 AND y.val = 'a'""",
    "a view, itself again, and its table": """
        SELECT a.id, b.n, t.val FROM some a JOIN some b ON a.n = b.n JOIN t ON t.n = b.n
        WHERE a.id = 3 AND b.id > 3 AND t.val = 'b'""",
    "a cached frame and its table": """
        SELECT count(*) FROM kept WHERE id = 4 UNION ALL SELECT count(*) FROM kept
        UNION ALL SELECT count(*) FROM t WHERE id < 30""",
    "IN and EXISTS": """
        SELECT id FROM t WHERE n IN (SELECT n FROM t WHERE id = 3)
            AND EXISTS (SELECT 1 FROM t b WHERE b.n = t.n AND b.val = 'b' AND b.id <> t.id)""",
    "a union of two times, and their difference": """
        SELECT 'old' AS at, id, val FROM old WHERE id > 38
        UNION ALL SELECT 'new', id, val FROM t WHERE id > 38
        UNION ALL SELECT 'both', t.id, old.val FROM t JOIN old ON t.id = old.id
        WHERE t.val IS NULL""",
}
IN_A_SOAK = {
    "a self join, one side filtered": "SELECT count(*) FROM t a, t b WHERE a.id = 3",
    "an outer self join": """
        SELECT a.id, b.val FROM t a LEFT JOIN (SELECT * FROM t WHERE id < 5) b ON a.id = b.id""",
    "a union of different ones": """
        SELECT id FROM t WHERE id < 3 UNION ALL SELECT id FROM t WHERE val = 'b'
        UNION ALL SELECT id FROM t WHERE id IN (7, 8)""",
    "EXCEPT": "SELECT id FROM t EXCEPT SELECT id FROM t WHERE id > 3",
    "EXCEPT of two times": "SELECT id, val FROM t EXCEPT SELECT id, val FROM old",
    "INTERSECT": "SELECT id FROM t WHERE id > 3 INTERSECT SELECT id FROM t WHERE val = 'a'",
    "values of subqueries": """
        SELECT (SELECT count(*) FROM t WHERE id = 3) AS a, (SELECT count(*) FROM t) AS b,
            (SELECT max(id) FROM t WHERE val = 'a') AS c""",
    "a filter by a subquery's value": """
        SELECT count(*) FROM t WHERE id > (SELECT max(id) - 5 FROM t WHERE val = 'a')""",
    "NOT IN": "SELECT count(*) FROM t WHERE n NOT IN (SELECT n FROM t WHERE id = 3)",
    "NOT EXISTS": """
        SELECT count(*) FROM t a WHERE NOT EXISTS
            (SELECT 1 FROM t b WHERE b.n = a.n AND b.val = 'b')""",
    "a CTE and its table": """
        WITH c AS (SELECT * FROM t WHERE val = 'b') SELECT count(*) FROM t JOIN c ON t.n = c.n""",
    "all after some": "SELECT count(*), sum(n) FROM t",
    "some": "SELECT id, val FROM t WHERE id = 3",
    "others": "SELECT id FROM t WHERE id = 4 AND val = 'a'",
    "a prefix and nulls": "SELECT count(*) FROM t WHERE val LIKE 'b%' OR val IS NULL",
    "none": "SELECT id FROM t WHERE id = -1",
}
VIEWS = {
    "low": "SELECT * FROM t WHERE id < 20",
    "some": "SELECT * FROM low WHERE id < 15",
    "kept": "SELECT * FROM t WHERE id < 25",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, pa.Table, pa.Table]:
    """The URI of a table with rows in the base, in generations and in the WAL, its rows, and those
    of its checkpoint `early`."""
    uri = str(tmp_path_factory.mktemp("twice") / "t.lance")
    table = mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 2)])
    with table.writer() as writer:
        for first, val in ((0, "a"), (20, "b"), (40, None)):
            keys = list(range(first, first + 30))
            writer.upsert({"id": keys, "val": [val] * 30, "n": [key % 7 for key in keys]})
            if val is not None:
                writer.flush()
            if val == "a":
                table.merge()
            if val == "b":
                table.checkpoint("early")
                early = table.scan().read_all()
    return uri, table.scan().read_all(), early


def make_views(spark: SparkSession, form: str, uri: str) -> None:
    """`t` and `old` read by a format, or from a catalog, and the views of them."""
    if form == "catalog":
        spark.conf.set("spark.sql.catalog.twice", "io.memwal.spark.MemwalCatalog")
        spark.conf.set("spark.sql.catalog.twice.root", str(Path(uri).parent))
        now, old = (
            spark.sql(f"SELECT * FROM twice.t {of}") for of in ("", "VERSION AS OF 'early'")
        )
    else:
        now, old = (spark.read.format(form).options(**of).load(uri) for of in ({}, EARLY))
    now.createOrReplaceTempView("t")
    old.createOrReplaceTempView("old")
    for name, query in VIEWS.items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {query}")
    spark.table("kept").cache()


# Another library may have turned the hand-over of filters on. With the jar and without it.
@pytest.mark.parametrize(
    ("form", "adaptive", "handed_over"),
    [
        pytest.param(form, on, on, marks=needs_jar if form == "catalog" else ())
        for form, on in usual([*product(("memwal", "catalog", "memwal_python"), SWITCH)], 3)
    ],
)
def test_every_statement_sees_all_rows_at_every_use(
    spark: SparkSession,
    rows: tuple[str, pa.Table, pa.Table],
    form: str,
    adaptive: str,
    handed_over: str,
) -> None:
    uri, found, early = rows
    oracle = datafusion.SessionContext()
    oracle.from_arrow(found, "t")
    oracle.from_arrow(early, "old")
    for name, query in VIEWS.items():
        oracle.sql(f"CREATE VIEW {name} AS {query}")
    make_views(spark, form, uri)
    wrong = {}
    given = {
        "spark.sql.adaptive.enabled": adaptive,
        "spark.sql.python.filterPushdown.enabled": handed_over,
    }
    with settings(spark, **given):
        for name, statement in (ALWAYS | (IN_A_SOAK if IS_SOAK else {})).items():
            ours = Counter(map(tuple, spark.sql(statement).collect()))
            right = Counter(tuple(row.values()) for row in oracle.sql(statement).to_pylist())
            assert right or name == "none", name
            if ours != right:
                wrong[name] = (ours, right)
    spark.table("kept").unpersist()
    assert not wrong


@pytest.mark.parametrize("handed_over", usual(["true", "false"], 1))
def test_frames_and_views_made_of_one_another_have_their_own_rows(
    spark: SparkSession, rows: tuple[str, pa.Table, pa.Table], handed_over: str
) -> None:
    uri, found, _ = rows
    total = found.num_rows
    with settings(spark, **{"spark.sql.python.filterPushdown.enabled": handed_over}):
        whole = load(spark, uri)
        assert whole.where("id = 3").count() == 1
        assert whole.count() == total
        whole.createOrReplaceTempView("whole")
        some = spark.sql("SELECT * FROM whole WHERE id < 10")
        some.createOrReplaceTempView("some")
        kept = spark.sql("SELECT * FROM some WHERE id < 5").cache()
        assert [spark.table(name).count() for name in ("some", "whole", "some")] == [10, total, 10]
        assert kept.count() == 5
        assert whole.where("id IN (1, 60)").count() == 2
        assert kept.union(some).union(whole).count() == 15 + total
        all_kept = whole.cache()
        assert all_kept.where("id = 4").count() == 1
        assert spark.table("whole").count() == total
        all_kept.unpersist()
        kept.unpersist()
        assert some.count() == 10
        assert whole.join(some.where("id > 7"), "id").count() == 2
        assert sorted(row["id"] for row in whole.rdd.map(lambda row: row).collect()) == sorted(
            found["id"].to_pylist()
        )


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({"filter": "id < 10 OR val = 'b'"}, [*range(10), *range(20, 40)]),
        ({"query": "SELECT * FROM memwal WHERE val = 'b'"}, [*range(20, 40)]),
    ],
)
def test_a_relation_of_some_rows_has_these_at_every_use(
    spark: SparkSession,
    rows: tuple[str, pa.Table, pa.Table],
    options: dict[str, str],
    keys: list[int],
) -> None:
    given = load(spark, rows[0], **options).select("id")
    both = given.where("id = 25").union(given).union(given.where("id > 30"))
    seen = Counter(row["id"] for row in both.collect())
    assert seen == Counter([25, *keys, *range(31, 40)])
    assert given.count() == len(keys)


def test_a_stream_of_changes_is_whole_at_every_use(
    spark: SparkSession, rows: tuple[str, pa.Table, pa.Table], tmp_path: Path
) -> None:
    """Also beside a table that it is joined with.

    Neither by a broadcast nor by adaptive stages: Spark prepares these in threads of their own,
    where it talks to the one reader of a stream while another use of it does, and takes the answer
    to one question for the other's (docs/limits.md).
    """
    one_thread = {
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
    }
    uri, found, _ = rows
    changes = spark.readStream.format("memwal").option("changes", "true").load(uri).select("id")
    whole = load(spark, uri).select("id", "n")
    joined = changes.where("id = 3").join(whole.where("n = 3"), "id").select("id")
    both = joined.union(changes).union(changes.join(whole, "id").select("id"))
    writer = both.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with settings(spark, **one_thread):
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    assert query.exception() is None
    seen = Counter(row["id"] for row in spark.read.parquet(str(tmp_path / "out")).collect())
    written = Counter([*range(30), *range(20, 50), *range(40, 70)])
    expected = Counter({key: 2 * times for key, times in written.items()}) + Counter([3])
    assert seen == expected
    assert whole.count() == found.num_rows
