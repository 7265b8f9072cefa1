//! The counters of a Python node as DataFusion metrics, for EXPLAIN ANALYZE.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion_physical_plan::metrics::{Count, Metric, MetricValue, MetricsSet, Time};
use pyo3::prelude::*;

/// The metrics of `node.metrics.values()`, a dict of name to int. Names that DataFusion knows become
/// its own metrics; a name that ends in `_ns` is a time; any other is a count.
pub fn metrics_of(node: &Bound<'_, PyAny>) -> PyResult<MetricsSet> {
    let counters = node.getattr("metrics")?.call_method0("values")?;
    let counters: BTreeMap<String, u64> = counters.extract()?;
    let mut metrics = MetricsSet::new();
    for (name, value) in counters {
        metrics.push(Arc::new(Metric::new(metric_value(&name, value), None)));
    }
    Ok(metrics)
}

fn metric_value(name: &str, value: u64) -> MetricValue {
    match name {
        "output_rows" => MetricValue::OutputRows(count(value)),
        "output_batches" => MetricValue::OutputBatches(count(value)),
        "output_bytes" => MetricValue::OutputBytes(count(value)),
        "elapsed_compute_ns" => MetricValue::ElapsedCompute(time(value)),
        _ => match name.strip_suffix("_ns") {
            Some(name) => MetricValue::Time { name: name.to_owned().into(), time: time(value) },
            None => MetricValue::Count { name: name.to_owned().into(), count: count(value) },
        },
    }
}

fn count(value: u64) -> Count {
    let count = Count::new();
    count.add(usize::try_from(value).unwrap_or(usize::MAX));
    count
}

fn time(nanoseconds: u64) -> Time {
    let time = Time::new();
    time.add_duration(Duration::from_nanos(nanoseconds));
    time
}
