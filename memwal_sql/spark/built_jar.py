"""The jar that gives Spark pushdown and catalogs."""

from __future__ import annotations

from pathlib import Path

import pyspark

from memwal_sql.errors import InvalidCallError

_BUILT = "memwal-spark-*.jar"


def jar() -> str:
    """The path of the jar, for the setting `spark.jars` of a session that is going to be made.

    Raises InvalidCallError when the jar was not built, or for another minor version of Spark than
    the PySpark that is installed.
    """
    return str(find_jar(Path(__file__).parent, pyspark.__version__))


def find_jar(folder: Path, version: str) -> Path:
    """The jar in a folder for a version of Spark. Raises what `jar` does."""
    minor = ".".join(version.split(".")[:2])
    built = {path.stem.rpartition("-")[2]: path for path in sorted(folder.glob(_BUILT))}
    if not built:
        raise InvalidCallError(
            "the jar for Spark was not built: a wheel has it; in a checkout install a JDK of 17 or "
            "newer, and run make setup"
        )
    if minor not in built:
        raise InvalidCallError(
            f"the jar is built for Spark {', '.join(built)}, and this is PySpark {version}: "
            "install the version that memwal-sql[spark] asks for"
        )
    return built[minor]
