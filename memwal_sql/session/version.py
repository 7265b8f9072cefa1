"""Refuses a `datafusion` package that the native library can't talk to."""

from __future__ import annotations

import importlib.metadata

# The version that the native library was tried with. Within a major one DataFusion means to
# keep the layout of its foreign functions, but `native/src/mount/ffi_table.rs` repeats private
# parts.
TRIED = "55.0.0"


def check_datafusion_version() -> None:
    """Raise ImportError unless the installed `datafusion` is one that the library was tried with.

    Another one might lay out what passes between the two in another way, and memory would be read
    as what it is not.
    """
    installed = importlib.metadata.version("datafusion")
    if installed != TRIED:
        raise ImportError(
            f"memwal_sql was built for datafusion {TRIED}, but datafusion {installed} is "
            f"installed: pip install datafusion=={TRIED}"
        )
