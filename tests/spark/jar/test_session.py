"""The jar: what it finds, and what it says where it does not fit."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from memwal_sql.errors import InvalidCallError
from memwal_sql.spark import jar
from memwal_sql.spark.built_jar import find_jar
from tests.spark.conftest import needs_jar
from tests.spark.frames import frame, load, rows, save


@needs_jar
def test_the_jar_names_the_minor_version_of_spark() -> None:
    with zipfile.ZipFile(jar()) as archive:
        manifest = archive.read("META-INF/MANIFEST.MF").decode()
    assert "Spark-Version: 4.3\n" in manifest


def test_a_jar_that_is_missing_or_for_another_spark_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidCallError, match="make setup"):
        find_jar(tmp_path, "4.3.0")
    (tmp_path / "memwal-spark-4.2.jar").touch()
    with pytest.raises(
        InvalidCallError, match=r"built for Spark 4\.2, and this is PySpark 4\.3\.0"
    ):
        find_jar(tmp_path, "4.3.0")


@needs_jar
def test_another_minor_version_of_spark_is_one_error_with_both(spark: SparkSession) -> None:
    check = spark._jvm.io.memwal.spark.SparkVersion.check
    check("4.3.9")
    with pytest.raises(PySparkException, match=r"built for Spark 4\.3, and this is Spark 4\.4\.0"):
        check("4.4.0")


def test_the_format_is_known_without_registration_in_every_session(
    spark: SparkSession, uri: str
) -> None:
    other = spark.newSession()
    save(frame(other, 0, 3, "a"), uri, primaryKey="id")
    assert rows(load(spark, uri)) == dict.fromkeys(range(3), "a")
    assert rows(load(other, uri)) == dict.fromkeys(range(3), "a")
