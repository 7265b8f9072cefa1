"""DuckLake by DuckDB's extension: `MERGE` into Parquet files with a catalog in DuckDB."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import duckdb
import pyarrow as pa

from benchmarks.peers.duckdb import DuckDb
from benchmarks.peers.peer import MissingPeerError

# A package that has the extension, for one version of DuckDB.
_PACKAGE = "duckdb_extension_ducklake"


class DuckLake(DuckDb):
    """A catalog and files of its own; it has no keys. Statements are those of DuckDB."""

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


def _extension() -> str:
    """The extension's file, or its name once DuckDB has installed it from its own server."""
    try:
        package = import_module(_PACKAGE)
    except ImportError:
        duckdb.execute("INSTALL ducklake")
        return "ducklake"
    folder = Path(str(package.__file__)).parent / "extensions" / f"v{duckdb.__version__}"
    return str(folder / "ducklake.duckdb_extension")
