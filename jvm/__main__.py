"""`python -m jvm`: compiles the jar for Spark into the package, if its sources are newer.

Without a JDK it says so and ends well, as all but the jar works without; with `--needed` it fails.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
JAVA = "17"  # the oldest that Spark 4.3 runs on
_NO_JDK = """\
There is no javac of Java 17 or newer. All but the jar for Spark works: memwal_sql.spark.jar() has
nothing to return, so Spark has neither pushdown nor catalogs. Install a JDK, such as
openjdk-17-jdk-headless, and run `make setup` again."""
# The same bytes from the same sources.
_TIME = (2020, 1, 1, 0, 0, 0)


def main(arguments: list[str]) -> int:
    """The exit code."""
    spark = ".".join(distribution("pyspark").version.split(".")[:2])
    target = ROOT / "memwal_sql" / "spark" / f"memwal-spark-{spark}.jar"
    newest = max(path.stat().st_mtime for path in HERE.rglob("*") if path.is_file())
    if target.exists() and target.stat().st_mtime >= newest:
        return 0
    compiler = _compiler()
    if compiler is None:
        print(_NO_JDK, file=sys.stderr)
        return int("--needed" in arguments)
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder)
        _compile(compiler, spark, classes)
        _pack(classes, spark, target)
    print(f"Built {target.name} with {compiler}.")
    return 0


def _compiler() -> str | None:
    found = shutil.which("javac")
    if found is None:
        return None
    shown = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r"javac (\d+)", shown.stdout + shown.stderr)
    return found if version is not None and int(version[1]) >= int(JAVA) else None


def _compile(compiler: str, spark: str, classes: Path) -> None:
    info = classes / "BuildInfo.java"
    info.write_text(
        "package io.memwal.spark;\n"
        f'final class BuildInfo {{ static final String SPARK_MINOR = "{spark}"; }}\n'
    )
    jars = str(distribution("pyspark").locate_file("pyspark/jars/*"))
    lint = "-Xlint:all,-classfile,-path,-processing"  # the last two are about Spark's jars
    options = ["--release", JAVA, lint, "-Werror", "-proc:none"]
    sources = [str(path) for path in sorted(HERE.rglob("*.java"))]
    command = [compiler, *options, "-cp", jars, "-d", str(classes), str(info), *sources]
    subprocess.run(command, check=True)
    info.unlink()


def _pack(classes: Path, spark: str, target: Path) -> None:
    """Write the jar beside its place, then into it: a session may be reading the one before."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    manifest = (
        "Manifest-Version: 1.0\n"
        "Implementation-Title: memwal_sql\n"
        f"Implementation-Version: {version}\n"
        f"Spark-Version: {spark}\n\n"
    )
    made = target.with_suffix(".new")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _TIME), manifest)
        for name, path in _entries(classes):
            archive.writestr(zipfile.ZipInfo(name, _TIME), path.read_bytes())
    made.replace(target)


def _entries(classes: Path) -> Iterator[tuple[str, Path]]:
    for root in (classes, HERE / "resources"):
        for path in sorted(root.rglob("*")):
            if path.is_file():
                yield path.relative_to(root).as_posix(), path


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
