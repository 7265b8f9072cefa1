"""The base table: every key once. That none is null, Lance itself sees to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from exec_nodes.kernels.key_codes import KeyCodes
from exec_nodes.kernels.keys import key_column, one_array
from memwal_sql.maintain.checks.state import CheckState
from memwal_sql.maintain.findings import Finding, Severity


def check_base_keys(state: CheckState) -> Iterator[Finding]:
    """A key that is there twice is returned twice: there is no telling which row is newer."""
    names = list(state.base.info.primary_key)
    where = f"version {state.base.version} of the base table"
    keys = state.base.dataset.to_table(columns=names)
    if keys.num_rows < 2:
        return
    codes = KeyCodes(one_array(key_column(keys.columns))).codes
    seen = np.bincount(codes)
    again = np.flatnonzero(seen[codes] > 1)
    if len(again):
        example = keys.slice(int(again[0]), 1).to_pylist()[0]
        yield Finding(
            Severity.ERROR,
            f"{int((seen > 1).sum())} keys are there more than once, such as {example}: plain "
            "Lance appended or inserted rows that were there",
            where,
            "upsert these keys through a writer and merge, or delete the wrong rows with Lance",
        )
