#!/usr/bin/env bash
# DataFusion 55.2.0 (wheel 55.0.0) does not sort by a column of which the query compares a cast with a
# value: it takes the column for constant, though many values have one cast. LIMIT gives other rows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "datafusion==55.0.0" "pyarrow==26.0.1"
"$folder/venv/bin/python" - <<'PYTHON'
import datafusion

ROWS = "(VALUES (2.9::DOUBLE, 1), (2.1, 1), (2.5, 1), (3.5, 1)) AS t(d, a)"
CONDITIONS = ["CAST(d AS INT) = 2", "CAST(d AS INT) BETWEEN 2 AND 2", "floor(d) = 2"]
ORDERS = ["ORDER BY d", "ORDER BY a, d", "ORDER BY d LIMIT 1"]
context = datafusion.SessionContext()
found = {}
for condition in CONDITIONS:
    texts = [f"SELECT d FROM {ROWS} WHERE {condition} {order}" for order in ORDERS]
    found[condition] = [context.sql(text).to_pydict()["d"] for text in texts]
    print(condition, found[condition])
cast, between, floor = found.values()
assert cast == between == [[2.9, 2.1, 2.5], [2.9, 2.1, 2.5], [2.9]]
assert floor == [[2.1, 2.5, 2.9], [2.1, 2.5, 2.9], [2.1]]
PYTHON
# Seen 2026-11-30: CAST(d AS INT) = 2 [[2.9, 2.1, 2.5], [2.9, 2.1, 2.5], [2.9]]
#       CAST(d AS INT) BETWEEN 2 AND 2 [[2.9, 2.1, 2.5], [2.9, 2.1, 2.5], [2.9]]
#       floor(d) = 2 [[2.1, 2.5, 2.9], [2.1, 2.5, 2.9], [2.1]]
