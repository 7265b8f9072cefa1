"""The base table: every key once. That none is null, Lance itself sees to."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.codes import KeyCodes
from exec_nodes.keys.hashing import hash_columns
from exec_nodes.keys.keys import key_column, one_array
from exec_nodes.lance.scan import row_bytes
from memwal_sql.maintain.checks.findings import Finding, Severity
from memwal_sql.maintain.checks.state import CheckState
from memwal_sql.state.base_table import BaseTable


class KeysInMemory(Thresholds):
    """The keys of larger tables are compared in parts."""

    nbytes = 256 * 1024 * 1024


def check_base_keys(state: CheckState) -> Iterator[Finding]:
    """A key that is there twice is returned twice: there is no telling which row is newer."""
    repeated, example = 0, None
    for keys in _in_parts(state.base):
        if keys.num_rows < 2:
            continue
        codes = KeyCodes(one_array(key_column(keys.columns))).codes
        seen = np.bincount(codes)
        again = np.flatnonzero(seen[codes] > 1)
        if len(again):
            repeated += int((seen > 1).sum())
            example = example or keys.slice(int(again[0]), 1).to_pylist()[0]
    if repeated:
        yield Finding(
            Severity.ERROR,
            f"{repeated} keys are there more than once, such as {example}: plain Lance appended or "
            "inserted rows that were there",
            f"version {state.base.version} of the base table",
            "upsert these keys through a writer and merge, or delete the wrong rows with Lance",
        )


def _in_parts(base: BaseTable) -> Iterator[pa.Table]:
    """All keys, in parts that fit into memory and have no key in common: the keys are read once
    for each part."""
    names = list(base.info.primary_key)
    fields = pa.schema([base.info.schema.field(name) for name in names])
    parts = max(1, math.ceil(base.source.rows * row_bytes(fields) / KeysInMemory.nbytes))
    for part in range(parts):
        scanner = base.dataset.scanner(columns=names)
        if parts == 1:
            yield scanner.to_table()
            return
        batches = (
            batch.filter(pa.array(hash_columns(batch.columns) % parts == part))
            for batch in scanner.to_batches()
        )
        yield pa.Table.from_batches(batches, scanner.projected_schema)
