"""The versions of `datafusion` that the native library works with, and how."""

from __future__ import annotations

import importlib.metadata

from memwal_native import DATAFUSION_MAJOR, quick_tables

# Tried with the private layouts that `native/src/mount/ffi_table.rs` repeats.
TRIED = "55.0.0"


def use_datafusion() -> None:
    """Let tables answer the installed `datafusion` quickly if it is the tried version; another
    version of the same major one is answered through public functions, about 1.3 ms a query slower.

    Raises ImportError for another major version: its memory layouts may differ, so data would be
    misread.
    """
    installed = importlib.metadata.version("datafusion")
    if installed.partition(".")[0] != str(DATAFUSION_MAJOR):
        raise ImportError(
            f"memwal_sql was built for datafusion {DATAFUSION_MAJOR}, but datafusion {installed} "
            f"is installed: pip install 'datafusion>={DATAFUSION_MAJOR},<{DATAFUSION_MAJOR + 1}'"
        )
    quick_tables(installed == TRIED)
