"""Option `--metrics`: this process's metrics as Prometheus reads them."""

from __future__ import annotations

import re
from importlib import import_module

from lance.otel import instrument_lance_metrics

from memwal_sql.errors import InvalidCallError, UnsupportedError

_ADDRESS = re.compile(r"(?P<host>[^:]*|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]{1,5})")


def serve_metrics(address: str) -> None:
    """Serve metrics, Lance's too, at `http://HOST:PORT/metrics` until the process ends.

    Raises InvalidCallError for text that is not an address and for an address that is taken, and
    UnsupportedError without the extra `otel`.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise InvalidCallError(f"--metrics {address!r} must be HOST:PORT, such as localhost:9100")
    try:
        exporter = import_module("opentelemetry.exporter.prometheus")
        sdk = import_module("opentelemetry.sdk.metrics")
        api = import_module("opentelemetry.metrics")
        client = import_module("prometheus_client")
    except ImportError as error:
        raise UnsupportedError(
            f"--metrics needs {error.name}: pip install 'memwal-sql[otel]'"
        ) from error
    api.set_meter_provider(sdk.MeterProvider(metric_readers=[exporter.PrometheusMetricReader()]))
    instrument_lance_metrics()
    try:
        client.start_http_server(int(match["port"]), match["host"].strip("[]") or "0.0.0.0")  # noqa: S104
    except OSError as error:
        raise InvalidCallError(f"--metrics {address!r} can't be served: {error}") from error
