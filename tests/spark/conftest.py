"""One Spark for all tests, which runs two tasks at a time, with the jar where it was built.

A task may fail twice: in one whole run a worker ended besides the one that a test had killed.

A soak has a master and two executors, each a process with workers of its own.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # of newer pandas versions
    from pyspark.sql import SparkSession

from memwal_sql.errors import InvalidCallError
from memwal_sql.spark import MemWalDataSource, jar
from tests.soak import IS_SOAK


class PythonSource(MemWalDataSource):
    """What format `memwal` is without the jar."""

    @classmethod
    def name(cls) -> str:
        return "memwal_python"


def jars() -> dict[str, str]:
    """The setting that brings the jar; none on a machine without a JDK."""
    try:
        return {"spark.jars": jar()}
    except InvalidCallError:
        return {}


needs_jar = pytest.mark.skipif(not jars(), reason="there is no JDK that could build the jar")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    here = Path(__file__).parent
    paths = [str(here / "preloaded"), str(here.parent.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    settings = {
        **jars(),
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.task.maxFailures": "3",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    master = "local-cluster[2,1,512]" if IS_SOAK else "local[2,3]"  # a test ends a task once
    builder = SparkSession.builder.master(master).appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    work = Path.cwd()
    os.chdir(folder)  # the executors' folders are made here
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lance's of forks: the child only becomes Java
            session = builder.getOrCreate()
    finally:
        os.chdir(work)
    session.sparkContext.setLogLevel("OFF")
    session.dataSource.register(PythonSource)
    yield session
    session.stop()
