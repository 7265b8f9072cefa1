"""What the jar hands over as columns: the values of each batch, and their memory."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import memwal_sql as mw
from tests.spark.conftest import needs_jar
from tests.spark.frames import load, refusal

pytestmark = needs_jar

ROWS = 40_000  # of several batches
_LONG = [0, 1, -1, 10**17, -(10**18) + 1, 10**18, 2**63 - 1, -(2**63), 2**63, -(2**64), 10**37]
SHORT = [Decimal(f"{n}e-2") for n in (0, 1, -1, 10**18 - 1, -(10**18) + 1)]
LONG = [Decimal(f"{n}e-3") for n in (*_LONG, 10**38 - 1)]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Decimals with and without nulls, structs in structs, lists and maps, of which each third is
    null."""
    ids = range(ROWS)
    inner = [None if i % 3 == 0 else {"z": i, "deep": {"s": str(i)}} for i in ids]
    table = pa.table(
        {
            "id": ids,
            "short": pa.array([SHORT[i % len(SHORT)] for i in ids], pa.decimal128(18, 2)),
            "long": pa.array(
                [None if i % 7 == 0 else LONG[i % len(LONG)] for i in ids], pa.decimal128(38, 3)
            ),
            "inner": inner,
            "many": [None if each is None else [each, None] for each in inner],
            "late": pa.array([None if i < ROWS // 2 else i for i in ids], pa.int32()),
        }
    )
    place = str(tmp_path_factory.mktemp("columns") / "table")
    with mw.create_table(place, table.schema, "id").writer() as writer:
        writer.upsert(table)
        writer.flush()
    return place


def arrow_bytes(spark: SparkSession) -> int:
    """The memory that Arrow has in the JVM."""
    utils = getattr(spark._jvm.org.apache.spark.sql.util, "ArrowUtils$")  # type: ignore[union-attr]
    return int(getattr(utils, "MODULE$").rootAllocator().getAllocatedMemory())


def test_every_batch_has_its_values(spark: SparkSession, uri: str) -> None:
    found = load(spark, uri).orderBy("id").toArrow().to_pylist()
    right = mw.open_table(uri).scan().read_all().sort_by("id").to_pylist()
    assert found == right


def test_memory_is_free_after_a_query_that_ends_early(spark: SparkSession, uri: str) -> None:
    before = arrow_bytes(spark)
    frame = load(spark, uri)
    cases = (
        lambda: frame.limit(5).collect(),
        lambda: frame.where("long IS NOT NULL").take(3),
        lambda: frame.select("inner.deep.s").tail(1),
        lambda: refusal(frame.selectExpr("raise_error(id)").collect),
        lambda: refusal(frame.where("id > 30000").selectExpr("id / (id - 35000)").collect),
    )
    for call in cases:
        call()
        assert arrow_bytes(spark) == before
