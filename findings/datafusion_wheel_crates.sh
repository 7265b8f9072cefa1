#!/usr/bin/env bash
# The wheel datafusion 55.0.0 does not hold DataFusion 55.0.0: its crates, datafusion-ffi too, are
# 55.2.0, as its bill of materials and SELECT version() say. A native library that shares plans with
# it over the FFI, and is built with the crates of the wheel's number, is built with others.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "datafusion==55.0.0" "pyarrow==26.0.1"
"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata as metadata
import json

import datafusion

wheel = metadata.distribution("datafusion")
bill = json.loads(wheel.read_text("sboms/datafusion-python.cyclonedx.json"))
crates = {
    part["name"]: part["version"]
    for part in bill["components"]
    if part["name"] in ("datafusion", "datafusion-ffi")
}
told = datafusion.SessionContext().sql("SELECT version() AS version").to_pydict()["version"][0]
print("wheel", wheel.version, "crates", crates, "version()", told)
assert wheel.version == "55.0.0", wheel.version
assert crates == {"datafusion": "55.2.0", "datafusion-ffi": "55.2.0"}, crates
assert told.startswith("Apache DataFusion 55.2.0,"), told
PYTHON
# Seen 2026-11-30: wheel 55.0.0 crates {'datafusion': '55.2.0', 'datafusion-ffi': '55.2.0'}
#       version() Apache DataFusion 55.2.0, x86_64 on linux
