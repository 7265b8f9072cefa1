"""One call of the jar: the name of an operation, arguments as JSON and parts in bytes, and its
answer. The other side is `Python.java`."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from pyspark.logger.worker_io import capture_outputs

from memwal_sql.errors import MemWalError
from memwal_sql.spark.driver.answer import Answer
from memwal_sql.spark.driver.catalog import CATALOG
from memwal_sql.spark.driver.changes import CHANGES
from memwal_sql.spark.driver.scan import SCANS

Operation = Callable[[Mapping[str, Any], Sequence[bytes]], Answer]

_INT = struct.Struct("!i")  # as Java writes them


def _with_json_alone(operation: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Operation:
    return lambda arguments, _: Answer(operation(arguments))


OPERATIONS: Mapping[str, Operation] = {
    **SCANS,
    **CHANGES,
    **{name: _with_json_alone(operation) for name, operation in CATALOG.items()},
}


def answer_call(infile: IO[bytes], outfile: IO[bytes]) -> None:
    """Run an operation. An error of this package is an answer, with its message; any other is
    Spark's to report, with the traceback."""
    name = _read(infile).decode()
    arguments = json.loads(_read(infile))
    parts = [_read(infile) for _ in range(_read_int(infile))]
    try:
        with capture_outputs():
            answer = OPERATIONS[name](arguments, parts)
    except MemWalError as error:
        answer = Answer({"error": f"{type(error).__name__}: {error}"})
    _write(outfile, json.dumps(answer.json).encode())
    if "error" not in answer.json:
        outfile.write(_INT.pack(len(answer.parts)))
        for part in answer.parts:
            _write(outfile, part)


def _read(file: IO[bytes]) -> bytes:
    return file.read(_read_int(file))


def _read_int(file: IO[bytes]) -> int:
    (number,) = _INT.unpack(file.read(_INT.size))
    return int(number)


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(_INT.pack(len(data)))
    file.write(data)
