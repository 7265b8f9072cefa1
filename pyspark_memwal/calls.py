"""The worker on the driver that the jar's classes call: Spark runs modules named `pyspark*`."""

from __future__ import annotations

from typing import IO

from pyspark.sql.worker.utils import worker_run

from memwal_sql.spark.driver.calls import answer_call


def main(infile: IO[bytes], outfile: IO[bytes]) -> None:
    """Answer one call. Spark's daemon calls this for each."""
    worker_run(answer_call, infile, outfile)
