"""Spark Connect: the format is known there, too.

Each case starts a Spark of its own. A soak also has the one without the jar.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak import usual
from tests.spark.conftest import jars

ROOT = Path(__file__).resolve().parents[3]
SETTINGS = sorted({"", jars().get("spark.jars", "")}, reverse=True)
pytest.importorskip("grpc_status", reason="pyspark[connect] is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("setting", usual(SETTINGS, 1))
def test_a_client_writes_and_reads_without_registration(tmp_path: Path, setting: str) -> None:
    child = [sys.executable, "-m", "tests.spark.processes.connect_child", str(tmp_path / "table")]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    names = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": paths}
    finished = subprocess.run(
        [*child, setting],
        env={**os.environ, **names},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.stdout == "[Row(id=2, city='Rome')] 2\n", finished.stderr
