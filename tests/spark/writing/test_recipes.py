"""The recipes for Spark do what they say."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import memwal_sql as mw
from tests.docs.pages import blocks
from tests.spark.conftest import jars


def test_recipes_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for recipe in ("spark-nightly", "spark-stream", "spark-past"):
        folder = tmp_path / recipe
        folder.mkdir()
        monkeypatch.chdir(folder)
        names: dict[str, Any] = {}
        for example in blocks(f"docs/recipes/{recipe}.md"):
            assert example.language == "pyspark"
            if "MemwalCatalog" in example.text and not jars():
                continue
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(example.text, recipe, "exec"), names)
            assert printed.getvalue() == example.output
        assert mw.open_table(names["uri"]).check().ok
