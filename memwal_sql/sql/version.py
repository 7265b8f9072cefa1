"""Refuses a `datafusion` package that the native library can't talk to."""

from __future__ import annotations

import importlib.metadata

import memwal_native


def check_datafusion_version() -> None:
    """Raise ImportError unless `datafusion` has the major version the library was built for.

    DataFusion's foreign function interface keeps its layout within a major version only; another
    one would read memory as what it is not.
    """
    installed = importlib.metadata.version("datafusion")
    wanted = memwal_native.DATAFUSION_MAJOR
    if installed.partition(".")[0] != str(wanted):
        raise ImportError(
            f"memwal_sql was built for datafusion {wanted}, but datafusion {installed} is "
            f"installed: pip install 'datafusion=={wanted}.*'"
        )
