"""The versions of `datafusion` that the native library works with, and how."""

from __future__ import annotations

import importlib.metadata
import re

from memwal_native import DATAFUSION_MAJOR, quick_tables

# The version of the crates whose private layouts `native/src/mount/ffi_table.rs` repeats. A wheel
# has another number than the crates in it: `datafusion` 55.0.0 holds crates 55.2.0.
TRIED_CRATES = "55.2.0"

_BILL = "sboms/datafusion-python.cyclonedx.json"
_CRATE = re.compile(r'"name":\s*"datafusion-ffi",\s*"version":\s*"([^"]+)"')


def use_datafusion() -> None:
    """Let tables answer the installed `datafusion` quickly if it holds the tried crates; another
    version of the same major one is answered through public functions, about 1.3 ms a query slower.

    Raises ImportError for another major version: its memory layouts may differ, so data would be
    misread.
    """
    installed = importlib.metadata.distribution("datafusion")
    if installed.version.partition(".")[0] != str(DATAFUSION_MAJOR):
        raise ImportError(
            f"memwal_sql was built for datafusion {DATAFUSION_MAJOR}, but datafusion "
            f"{installed.version} is installed: pip install "
            f"'datafusion>={DATAFUSION_MAJOR},<{DATAFUSION_MAJOR + 1}'"
        )
    quick_tables(crates_of(installed) == TRIED_CRATES)


def crates_of(installed: importlib.metadata.Distribution) -> str | None:
    """The version of the crate `datafusion-ffi` in a wheel, by its bill of materials (CycloneDX);
    None if it has none."""
    crate = _CRATE.search(installed.read_text(_BILL) or "")
    return crate and crate[1]
