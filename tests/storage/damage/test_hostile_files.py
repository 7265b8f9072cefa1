"""Random damage to any file of a table: every use of it gives right rows or a typed error.

No crash, no hang and no memory above 1 GB: the attempts run in processes of their own, whose last
line names the seed and the file. `hostile_child` says what is done to which files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from memwal_sql.state.batch_marks import BatchMark

pytestmark = pytest.mark.slow

ATTEMPTS = 60 * int(os.environ.get("MEMWAL_SOAK", "1"))
CHILDREN = 4
REGIONS = {"bucket": mw.bucket("id", 2), "truncate": mw.truncate("id", 30)}
SCHEMA = pa.schema(
    [("id", pa.int64()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), 4))]
)


def _rows(*keys: int, text: str = "quick fox") -> pa.Table:
    vectors = [[float(key)] * 4 for key in keys]
    columns = {"id": keys, "text": [f"{text} {key}" for key in keys], "vector": vectors}
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with some of everything that is ever on disk, as a process that died leaves it."""
    uri = tmp_path_factory.mktemp("hostile") / "t"
    made = subprocess.run(
        [sys.executable, "-m", "tests.storage.damage.test_hostile_files", str(uri), request.param],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert made.returncode == 0, made.stderr[-3000:]
    return str(uri)


def make_template(uri: str, kind: str) -> None:
    """Make the table; its writer is left open."""
    table = mw.create_table(uri, SCHEMA, "id", regions=[REGIONS[kind]])
    with table.writer() as writer:
        writer.upsert(_rows(*range(20)))
        writer.flush()
        table.merge()
        table.create_index("text", "FTS")
        table.create_index("vector", "IVF_FLAT", num_partitions=1)
        for text in ("brown fox", "lazy dog"):
            writer.upsert(_rows(*range(5, 40, 3), text=text))
            writer.delete([1, 2])
            writer.flush()
        table.checkpoint("held")
        table.snapshot_regions()
    stager = table.stager("job", RowForm())
    table.publisher().publish([stager.stage(_rows(55, 56).to_batches())], BatchMark("q", 0))
    writer = table.writer()
    writer.upsert(_rows(50, 51, 52))
    writer.delete([3])


def _cases() -> Iterator[tuple[str, int, int]]:
    """A kind of regions, and seeds from one up to another."""
    share = ATTEMPTS // CHILDREN
    for child in range(CHILDREN):
        yield sorted(REGIONS)[child % len(REGIONS)], child * share, (child + 1) * share


@pytest.mark.parametrize(("template", "first", "last"), tuple(_cases()), indirect=["template"])
def test_random_damage_is_read_right_or_told(template: str, first: int, last: int) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.storage.damage.hostile_child",
            template,
            str(first),
            str(last),
        ],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=300 + 30 * (last - first),
        check=False,
    )
    lines = done.stdout.splitlines()
    wrong = [line for line in lines if line.startswith("WRONG")]
    assert wrong == [], "\n".join(wrong)
    assert done.returncode == 0, (done.returncode, lines[-1:], done.stderr[-3000:])
    assert lines[-1] == "DONE", (lines[-1:], done.stderr[-3000:])
    assert len(lines) == last - first + 1


if __name__ == "__main__":
    make_template(sys.argv[1], sys.argv[2])
    os._exit(0)
