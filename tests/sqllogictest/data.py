"""Files of data that the crate lacks: random rows of the columns that a statement gives."""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path
from random import Random

_TABLE = re.compile(
    r"\s*CREATE\s+(?:UNBOUNDED\s+)?EXTERNAL\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?\S+\s*\((.*)\)\s*"
    r"STORED\s+AS\s+CSV.*LOCATION\s+'(\.\./[^']+\.csv)'(.*)",
    re.IGNORECASE | re.DOTALL,
)
_COLUMN = re.compile(r"^\s*(?:\"[^\"]+\"|\w+)\s+(\w+(?:\s+UNSIGNED)?(?:\s*\(.*\))?)", re.IGNORECASE)
_ROWS = 100


def make_missing(statement: str) -> None:
    """Make the CSV file of a CREATE EXTERNAL TABLE with columns, if it is not there."""
    found = _TABLE.match(statement)
    if found is None or (path := Path(found.group(2))).exists():
        return
    columns = re.split(r",(?![^(]*\))", found.group(1))
    kinds = [kind.group(1).upper() for one in columns if (kind := _COLUMN.match(one))]
    rng = Random(path.name)
    header = [[f"column{place}" for place in range(len(kinds))]]
    rows = header if _has_header(found.group(3)) else []
    rows += [[_value(kind, rng) for kind in kinds] for _ in range(_ROWS)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{','.join(row)}\n" for row in rows))


def _has_header(options: str) -> bool:
    return re.search(r"has_header'?\s+'?false", options, re.IGNORECASE) is None


def _value(kind: str, rng: Random) -> str:
    if "INT" in kind:
        return str(rng.randrange(0 if "UNSIGNED" in kind else -100, 100))
    if kind.startswith(("FLOAT", "DOUBLE", "REAL", "DECIMAL", "NUMERIC")):
        return f"{rng.randrange(10_000) / 100}"
    if kind.startswith("BOOL"):
        return rng.choice(["true", "false"])
    if kind.startswith(("DATE", "TIMESTAMP")):
        return str(date(2021, 1, 1) + timedelta(days=rng.randrange(1000)))
    return rng.choice("abcde")
