"""A catalog over a new folder, and its statements."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

SECRET = "a-very-secret-value"
Sql = Callable[[str], list[Any]]


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> str:
    """The name of a catalog over a new folder."""
    name = f"lake{abs(hash(tmp_path))}"
    spark.conf.set(f"spark.sql.catalog.{name}", "io.memwal.spark.MemwalCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.root", str(tmp_path))
    spark.conf.set(f"spark.sql.catalog.{name}.storage.user_agent", SECRET)
    return name


@pytest.fixture
def sql(spark: SparkSession, lake: str) -> Sql:
    """Runs a statement in which the catalog is called `x`; its rows as tuples."""

    def run(text: str) -> list[Any]:
        return [tuple(row) for row in spark.sql(re.sub(r"\bx\b", lake, text)).collect()]

    return run
