#!/usr/bin/env bash
# Lance 14.0.2: the scanner of a MemWAL writer misses acknowledged rows while a full MemTable is being
# flushed. It returns the rows that these replaced, without an error, until the files are there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "pylance==14.0.2" "pyarrow==26.0.1"
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import time
import uuid

import lance
import pyarrow as pa

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("round", pa.int64())])
ROWS = 1000


def rows(number: int) -> pa.Table:
    return pa.table({"id": range(ROWS), "round": [number] * ROWS}, schema=SCHEMA)


lance.write_dataset(rows(0), "t").initialize_mem_wal(unsharded=True)
settings = {"max_wal_flush_interval_ms": 1, "max_memtable_rows": 10 * ROWS}
stale = {}
with lance.dataset("t").mem_wal_writer(str(uuid.uuid4()), **settings) as writer:
    for number in range(1, 101):
        writer.put(rows(number))  # durable, and it replaces all rows
        found = set(writer.lsm_scanner().to_table()["round"].to_pylist())
        if found != {number}:
            stale[number] = found
    time.sleep(2)
    at_last = set(writer.lsm_scanner().to_table()["round"].to_pylist())
print("rounds after which older rows were returned:", stale, "two seconds later:", at_last)
assert stale
assert at_last == {100}
PYTHON
# Seen 2026-11-30: rounds after which older rows were returned: {10: {0}, 20: {10}, 30: {20},
#       40: {30}, 50: {40}, 60: {50}, 70: {60}, 80: {70}, 90: {80}, 100: {90}} two seconds later: {100}
