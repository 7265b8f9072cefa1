"""Storage options that a text of SQL names: none sends this process's credentials to a server that
the text chooses, or makes files."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import datafusion
import pytest

import memwal_sql as mw
from tests.model.s3 import s3_server

OPENS = "CREATE EXTERNAL TABLE t STORED AS MEMWAL LOCATION"
DOORS: dict[str, Callable[[datafusion.SessionContext, str], object]] = {
    "open": lambda ctx, rest: mw.sql(ctx, f"{OPENS} {rest}"),
    "create": lambda ctx, rest: mw.sql(ctx, f"CREATE TABLE t (id INT PRIMARY KEY) LOCATION {rest}"),
    "as": lambda ctx, rest: mw.sql(
        ctx, f"CREATE TABLE t (PRIMARY KEY (id)) LOCATION {rest} AS SELECT 1 AS id"
    ),
}
REFUSED = {
    "s3": (
        ("aws_endpoint", "{}"),
        ("AWS_Endpoint_URL", "{}"),
        ("endpoint", "{}"),
        ("aws_endpoint_url_s3", "{}"),
        ("endpoint_url_sts", "{}"),
        ("aws_metadata_endpoint", "{}"),
        ("aws_container_credentials_full_uri", "{}"),
        ("aws_web_identity_token_file", "/etc/passwd"),
        ("proxy_url", "{}"),
        ("allow_http", "true"),
        ("allow_invalid_certificates", "true"),
        ("memwal_commit_log", "{log}"),
        ("aws_region", "evil.example/x"),
        ("nobody_knows_it", "1"),
    ),
    "az": (
        ("azure_endpoint", "{}"),
        ("azure_msi_endpoint", "{}"),
        ("azure_authority_host", "{}"),
        ("azure_storage_use_emulator", "true"),
        ("azure_storage_account_name", "evil.example/x"),
    ),
    "gs": (
        ("google_base_url", "{}"),
        ("google_service_account", "/etc/passwd"),
        ("google_service_account_key", '{{"gcs_base_url": "{}"}}'),
    ),
}


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Its address, and the requests that reach it."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(f"{self.command} {self.path} {self.headers}")
            self.send_error(404)

        do_PUT = do_HEAD = do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Nothing."""

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}", seen
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


@pytest.fixture
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION"):
        monkeypatch.setenv(f"AWS_{name}", "environment")


def options(*pairs: tuple[str, str]) -> str:
    texts = (f"'storage.{name}' '{value}'" for name, value in pairs)
    return f"OPTIONS ({', '.join(texts)}, 'storage.client_max_retries' '0')"


@pytest.mark.usefixtures("_credentials")
def test_a_statement_chooses_no_server_for_the_credentials(
    server: tuple[str, list[str]], tmp_path: Path
) -> None:
    url, seen = server
    log = tmp_path / "log.sqlite"
    ctx = datafusion.SessionContext()
    for scheme, pairs in REFUSED.items():
        for name, text in pairs:
            value = text.format(url, log=log)
            rest = f"'{scheme}://bucket/t' {options((name, value))}"
            for door, call in DOORS.items():
                with pytest.raises(mw.InvalidCallError) as caught, mw.memwal_errors():
                    call(ctx, rest)
                assert name.lower() in str(caught.value).lower(), (door, name)
                assert value in ("true", "1") or value not in str(caught.value), (door, name)
    assert seen == [] and not log.exists() and not ctx.table_exist("t")


def test_other_options_are_a_statement_s_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials, a region, times: the environment names the server."""
    with s3_server("bucket") as given:
        ctx = datafusion.SessionContext()
        environment = {"aws_endpoint": "AWS_ENDPOINT", "allow_http": "AWS_ALLOW_HTTP"}
        for name, variable in environment.items():
            monkeypatch.setenv(variable, given[name])
        theirs = [(name, value) for name, value in given.items() if name not in environment]
        rest = f"'s3://bucket/t' {options(*theirs)}"
        mw.sql(ctx, f"CREATE TABLE made (id INT PRIMARY KEY) LOCATION {rest}")
        mw.sql(ctx, "INSERT INTO made VALUES (1)")
        DOORS["open"](ctx, rest)
        assert ctx.sql("SELECT id FROM t").to_pydict() == {"id": [1]}
