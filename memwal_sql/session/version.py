"""Which versions of `datafusion` the native library can talk to, and how."""

from __future__ import annotations

import importlib.metadata

from memwal_native import DATAFUSION_MAJOR, quick_tables

# Tried with the private layouts that `native/src/mount/ffi_table.rs` repeats.
TRIED = "55.0.0"


def use_datafusion() -> None:
    """Let tables answer the installed `datafusion` the quick way where it is the version that was
    tried, and by its public functions, about 1.3 ms a query slower, where it is another one of the
    same major version.

    Raises ImportError for another major version: it may lay out what passes between the two in
    another way, and memory would be read as what it is not.
    """
    installed = importlib.metadata.version("datafusion")
    if installed.partition(".")[0] != str(DATAFUSION_MAJOR):
        raise ImportError(
            f"memwal_sql was built for datafusion {DATAFUSION_MAJOR}, but datafusion {installed} "
            f"is installed: pip install 'datafusion>={DATAFUSION_MAJOR},<{DATAFUSION_MAJOR + 1}'"
        )
    quick_tables(installed == TRIED)
