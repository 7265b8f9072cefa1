"""DuckLake by DuckDB's extension: `MERGE` into Parquet files with a catalog in DuckDB."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.peers.peer import MissingPeerError

# A package that has the extension, for one version of DuckDB.
_PACKAGE = "duckdb_extension_ducklake"


class DuckLake:
    """A catalog and files of its own; it has no keys."""

    packages = ("duckdb",)
    setting = "MERGE, a transaction each; the catalog in DuckDB is synced, files are not"

    def __init__(self, folder: Path, base: pa.Table) -> None:
        self._connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        try:
            self._connection.execute(f"LOAD '{_extension()}'")
        except duckdb.Error as error:
            raise MissingPeerError(str(error).partition("\n")[0]) from error
        self._connection.execute(
            f"ATTACH 'ducklake:{folder}/catalog.ducklake' AS lake (DATA_PATH '{folder}/data/')"
        )
        self._connection.execute("USE lake")
        self._connection.register("base", base)
        self._connection.execute("CREATE TABLE events AS SELECT * FROM base")
        self._connection.unregister("base")

    def upsert(self, rows: pa.Table) -> None:
        self._connection.register("upserted", rows)
        self._connection.execute(
            "MERGE INTO events USING upserted USING (id) "
            "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        )
        self._connection.unregister("upserted")

    def aggregate(self) -> tuple[int, float]:
        rows = self._connection.execute("SELECT count(*), avg(val) FROM events").fetchall()
        return rows[0]

    def get(self, key: int) -> list[tuple[int, float, str]]:
        return self._connection.execute("SELECT * FROM events WHERE id = ?", [key]).fetchall()

    def close(self) -> None:
        self._connection.close()


def _extension() -> str:
    """The extension's file, or its name once DuckDB has installed it from its own server."""
    try:
        package = import_module(_PACKAGE)
    except ImportError:
        duckdb.execute("INSTALL ducklake")
        return "ducklake"
    folder = Path(str(package.__file__)).parent / "extensions" / f"v{duckdb.__version__}"
    return str(folder / "ducklake.duckdb_extension")
