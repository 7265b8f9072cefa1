#!/usr/bin/env bash
# PySpark 4.3.0 runs the module that `spark.python.worker.module` names only if the name begins with
# "pyspark". Any other name, also of a module that does not exist, is passed over without a word, and
# the usual worker runs. Needs Java 17 or newer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "pyspark==4.3.0"
for name in own_worker pyspark_own_worker; do
  cat >"$folder/$name.py" <<'PYTHON'
import os
from pathlib import Path

from pyspark import worker


def main(infile, outfile):
    Path(os.environ["SEEN"], __name__).touch()
    worker.main(infile, outfile)
PYTHON
done
cat >"$folder/job.py" <<'PYTHON'
import sys

from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.python.worker.module", sys.argv[1]).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
assert spark.sparkContext.parallelize([1, 2], 1).map(lambda number: number + 1).sum() == 5
PYTHON
export PYTHONPATH="$folder" SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON="$folder/venv/bin/python"
for name in own_worker pyspark_own_worker no_such_worker; do
  mkdir "$folder/seen.$name"
  SEEN="$folder/seen.$name" "$folder/venv/bin/python" "$folder/job.py" "$name" 2>"$folder/log"
  echo "$name: ran $(ls "$folder/seen.$name" | grep . || echo pyspark.worker)"
done | tee "$folder/answers"
diff "$folder/answers" - <<'TEXT'
own_worker: ran pyspark.worker
pyspark_own_worker: ran pyspark_own_worker
no_such_worker: ran pyspark.worker
TEXT
# Seen 2026-11-30: as in the text above.
