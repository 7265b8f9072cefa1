"""What OpenTelemetry gets is what happened; nothing is counted without it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from lance.lance import lance_metrics_catalog, register_lance_metrics_recorder

import memwal_sql as mw
from memwal_sql import telemetry
from memwal_sql.cli import metrics
from memwal_sql.errors import InvalidCallError, UnsupportedError
from tests.docs.pages import page
from tests.each import each
from tests.model.small_rows import SCHEMA, make_rows

ROOT = Path(__file__).parent.parent.parent
NAMES = set(re.findall(r'"(memwal[.][a-z_.]+)"', Path(telemetry.__file__).read_text()))


def test_work_is_counted_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.telemetry.counting_child", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures: dict[str, dict[str, float]] = {}
    tables: dict[str, set[str | None]] = {name: set() for name in NAMES}
    for name, _, attributes, figure in json.loads(done.stdout):
        tables[name].add(attributes.get("table"))
        detail = "/".join(attributes.get(key, "") for key in ("job", "operation", "error"))
        figures.setdefault(name, {})[detail.strip("/")] = figure
    assert set(figures) == NAMES
    others = {"memwal.resident.size": {None}, "memwal.store.requests": {f"file://{tmp_path}"}}
    assert tables == {name: {f"{tmp_path}/table"} for name in NAMES} | others
    # Ten rows, three tombstones, one row of the plain write, one of the other writer, one or more
    # until back pressure, and one that is published.
    written = figures["memwal.written.rows"][""]
    assert 17 <= written <= 19
    assert figures["memwal.flushed.rows"][""] == figures["memwal.merged.rows"][""] > 10
    assert figures["memwal.conflicts"][""] == figures["memwal.fences"][""] == 1
    assert figures["memwal.unflushed.size"][""] == 0
    assert figures["memwal.back_pressure.duration"][""] >= 1
    assert figures["memwal.waiting.generations"] == figures["memwal.merged.generations"]
    assert figures["memwal.job.duration"]["merge"] == 1
    assert figures["memwal.store.requests"] == dict.fromkeys(("put", "get", "head", "delete"), 1)


def test_an_older_api_counts_nothing(tmp_path: Path) -> None:
    package = tmp_path / "opentelemetry"
    package.mkdir()
    (package / "metrics.py").write_text(
        "class Observation: ...\n"
        "class Meter:\n    def create_histogram(self, name, unit, description): ...\n"
        "def get_meter(*_): raise AssertionError\n"
    )
    text = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; import memwal_sql"
    subprocess.run([sys.executable, "-c", text], cwd=ROOT, check=True)


def test_the_manual_and_the_dashboard_name_what_there_is() -> None:
    names = r"^[|] `((?:memwal[.]|lance_)[a-z_.]+)`"
    rows = re.findall(names, page("docs/metrics.md"), re.MULTILINE)
    assert register_lance_metrics_recorder()
    assert sorted(rows) == sorted([*NAMES, *(metric.name for metric in lance_metrics_catalog())])
    dashboard = json.loads((ROOT / "docs/assets/grafana.json").read_text())
    shown = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    assert {n for n in NAMES if n.replace(".", "_") not in shown} == set()


@each("address", ["9100", "localhost", "localhost:x", "localhost:0", "localhost:70000", "a:b:1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidCallError, match="must be HOST:PORT"):
        metrics.serve_metrics(address)


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(metrics, "import_module", missing)
    with pytest.raises(UnsupportedError, match=r"pip install 'memwal-sql\[otel\]'"):
        metrics.serve_metrics("localhost:9100")


@pytest.fixture
def port() -> int:
    """A port that was free just now."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def jobs(tmp_path: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """The jobs of a table with a generation to merge, until they are told to end."""
    table = mw.create_table(tmp_path / "table", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert(make_rows(1))
        writer.flush()
    address = f"localhost:{port}"
    command = [sys.executable, "-m", "memwal_sql", "run", table.uri, "--metrics", address]
    command += ["--merge-generations", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.terminate()


def test_the_jobs_serve_their_metrics(jobs: subprocess.Popen[str], port: int) -> None:
    text = ""
    while "memwal_job_duration_seconds_count" not in text:
        assert jobs.poll() is None
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/metrics") as answer:
                text = answer.read().decode()
        except OSError:
            time.sleep(0.05)
    assert re.search(r"^memwal_merged_rows_total{.*} 1[.]0$", text, re.MULTILINE)
    assert re.search(
        r'^lance_object_store_requests_total{.*operation="put".*} ', text, re.MULTILINE
    )
