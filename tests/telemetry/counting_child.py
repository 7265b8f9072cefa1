"""Does some work with a meter provider, which a process can set once, and prints its metrics."""

from __future__ import annotations

import gc
import json
import sys
from contextlib import suppress

import pyarrow as pa
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from memwal_sql.storage.objects.options import split_options
from memwal_sql.storage.objects.remote import RemoteStore
from tests.model.process import as_another_process

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


def main(folder: str) -> None:
    reader = InMemoryMetricReader()
    set_meter_provider(MeterProvider(metric_readers=[reader]))
    table = mw.create_table(f"{folder}/table", SCHEMA, "id", "bucket(id, 2)")
    with table.writer(turns=False) as writer:
        writer.upsert([{"id": key, "v": 0} for key in range(10)])
        writer.delete([1, 2, 3])
        writer.flush()
        with suppress(mw.ConflictError), mw.transaction(table) as tx:
            tx.upsert(table, [{"id": 5, "v": 1}])
            writer.upsert([{"id": 5, "v": 2}])
        with as_another_process(), mw.open_table(table.uri).writer(turns=False) as other:
            other.upsert([{"id": 6, "v": 0}])
        with suppress(mw.FencedError):
            writer.upsert([{"id": 6, "v": 1}])
    with suppress(mw.BackPressureError):
        limits = {"max_unflushed_bytes": 1, "back_pressure_timeout_s": 0.01}
        with table.writer(**limits) as writer:
            for key in range(3):
                writer.upsert([{"id": key, "v": 1}])
    staged = table.stager("job", RowForm()).stage(pa.table({"id": [9], "v": [1]}).to_batches())
    table.publisher().publish([staged])
    gc.collect()  # nobody closes a publisher
    table.flush()  # or the round does so, after it has counted what waits
    mw.run_jobs_forever(table, mw.Triggers(merge_generations=1), rounds=1)
    store = RemoteStore(f"file://{folder}", split_options({}, "file"))
    store.put("object", b"")
    store.get("object")
    store.exists("object")
    store.delete(["object"])
    data = reader.get_metrics_data()
    (scope,) = data.resource_metrics[0].scope_metrics
    figures = [
        (metric.name, metric.unit, dict(point.attributes), _figure(point))
        for metric in scope.metrics
        for point in metric.data.data_points
    ]
    json.dump(figures, sys.stdout)


def _figure(point: object) -> float:
    return float(getattr(point, "value", getattr(point, "count", None)))


if __name__ == "__main__":
    main(sys.argv[1])
