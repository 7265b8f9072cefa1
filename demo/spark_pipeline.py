"""`python -m demo.spark_pipeline`: the flights go through Spark, from CSV to a table and back."""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from demo.checks import Outcome
from demo.flights import PRIMARY_KEY, load_flights
from demo.report import make_console, print_outcome
from memwal_sql.spark import merge, use_bundled_java

_COLUMNS = (
    "flight_date date, carrier string, flight int, origin string, dest string, distance int, "
    "dep_delay short, arr_delay short"
)
_NAMES = [column.split()[0] for column in _COLUMNS.split(", ")]
_BY_CARRIER = """
    SELECT carrier, count(*) AS flights, count(dep_delay) AS departed,
        sum(dep_delay) AS delay, sum(distance) AS miles
    FROM {table} GROUP BY carrier ORDER BY carrier
"""
_TABLES = ("flights", "plain")
_WAIT_SECONDS = 0.3


def main() -> int:
    """Run it over a whole year; returns 1 if a check did not come out right, else 0."""
    console = make_console()
    # Lance's of forks: the child only becomes Java; PySpark's of newer pandas versions.
    warnings.filterwarnings("ignore", module="lance|pyspark")
    use_bundled_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with TemporaryDirectory() as folder:
        console.print("Starting Spark ...")
        builder = SparkSession.builder.master("local[*]").appName("memwal demo")
        builder = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "2")
        builder = builder.config("spark.sql.session.timeZone", "UTC")
        builder = builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        try:
            spark = builder.getOrCreate()
        except PySparkRuntimeError as error:
            console.print(f"Spark is left out: it needs Java 17 or newer, and none starts: {error}")
            return 0
        spark.sparkContext.setLogLevel("ERROR")
        try:
            outcomes = run(spark, console, Path(folder), load_flights())
        finally:
            spark.stop()
    return int(any(outcome.problem is not None for outcome in outcomes))


def run(spark: SparkSession, console: Console, folder: Path, flights: pa.Table) -> list[Outcome]:
    """CSV files become a stream, the stream a table; what was checked."""
    source, uri = folder / "csv", str(folder / "flights")
    _write_months(flights.select(_NAMES), source)
    files = spark.readStream.schema(_COLUMNS).option("header", "true")
    rows = files.option("maxFilesPerTrigger", 2).csv(str(source))
    outcomes = [_stream(spark, console, rows, folder, uri, flights.num_rows)]
    start = time.perf_counter()
    merged = sum(merge(spark, uri).values())
    outcomes.append(Outcome(f"merge as a Spark job: {merged} generations", _since(start), None))
    start = time.perf_counter()
    spark.read.format("memwal").load(uri).createOrReplaceTempView("flights")
    plain = spark.read.schema(_COLUMNS).option("header", "true").csv(str(source))
    plain.createOrReplaceTempView("plain")
    ours, theirs = (spark.sql(_BY_CARRIER.format(table=name)).collect() for name in _TABLES)
    problem = None if ours == theirs else f"the table says {ours}, the CSV files say {theirs}"
    title = f"the same aggregation over the CSV files by Spark alone, {len(ours)} carriers"
    outcomes.append(Outcome(title, _since(start), problem))
    for outcome in outcomes:
        print_outcome(console, outcome)
    return outcomes


def _stream(
    spark: SparkSession, console: Console, rows: DataFrame, folder: Path, uri: str, total: int
) -> Outcome:
    """Write the stream while Spark SQL counts what is there."""
    start = time.perf_counter()
    writer = rows.writeStream.format("memwal").option("primaryKey", ", ".join(PRIMARY_KEY))
    writer = writer.option("regions", "bucket(flight, 2)").trigger(
        processingTime="200 milliseconds"
    )
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(uri)
    seen, problem = 0, None
    while seen < total and problem is None and query.isActive:
        if query.lastProgress is None:
            time.sleep(_WAIT_SECONDS)
            continue
        count = spark.read.format("memwal").load(uri).count()
        if not seen <= count <= total:
            problem = f"{count:,} rows after {seen:,}, of {total:,}"
        if count > seen:
            console.print(f"  {_since(start):5.1f} s  Spark SQL counts {count:,} flights")
        seen = count
    query.stop()
    if query.exception() is not None:
        problem = str(query.exception())
    return Outcome(f"a stream of {total:,} flights, counted while it came", _since(start), problem)


def _write_months(flights: pa.Table, folder: Path) -> None:
    """One file a month, the oldest first."""
    folder.mkdir()
    months = pc.month(flights["flight_date"])
    for month in sorted(pc.unique(months).to_pylist()):
        path = folder / f"{month:02}.csv"
        csv.write_csv(flights.filter(pc.equal(months, month)), path)
        os.utime(path, (month, month))


def _since(start: float) -> float:
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
