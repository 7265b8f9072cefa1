"""Credentials are in nothing that is said where a server fails and repeats what it was sent."""

from __future__ import annotations

import gc
import logging
import os
import random
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import memwal_sql as mw
from exec_nodes.base import secrets
from memwal_sql.cli.app import app
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.open import canonical_uri, open_store
from tests.each import each
from tests.model.s3 import Application, s3_server
from tests.model.writing import flush_rows, session_of
from tests.soak import usual

ID, KEY = "AKIAVERYSECRETID", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYSECRET"
TOKEN = "FwoGZXIvYXdzE/SESSION+TOKEN/SECRET=="
PASSWORD = "wJalrXUtnFEMI-SECRET-bPxRfiCY"
SECRETS = (ID, KEY, TOKEN, PASSWORD)
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string())])
ROWS = {"id": [1, 2, 3], "v": ["one word", "two words", "three"]}


@dataclass
class Talkative:
    """Answers the `failing` request from now on, and all after it, with what it was sent."""

    failing: int | None = None
    options: dict[str, str] = field(default_factory=dict)
    seen: int = 0
    repeated: int = 0

    def around(self, app: Application) -> Application:
        def answer(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            self.seen += 1
            if self.failing is None or self.seen < self.failing:
                return app(request, start)
            self.repeated += 1
            sent = "\n".join(f"{k}:{v}" for k, v in request.items() if k.startswith("HTTP_"))
            body = (
                (
                    "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message>"
                    f"<AWSAccessKeyId>{ID}</AWSAccessKeyId><CanonicalRequest>{sent} {KEY}"
                    "</CanonicalRequest></Error>"
                )
                .replace("\n", " ")
                .encode()
            )
            start("403 Forbidden", [("Content-Length", str(len(body)))])
            return [body]

        return answer


@pytest.fixture(scope="module")
def server() -> Iterator[Talkative]:
    talkative = Talkative()
    with s3_server("secrets", KEY, talkative.around) as options:
        talkative.options = {
            **options,
            "aws_access_key_id": ID,
            "aws_session_token": TOKEN,
            "client_max_retries": "0",
        }
        yield talkative


def _insert(table: mw.Table) -> None:
    context = session_of("t", table)
    context.sql("INSERT INTO t VALUES (7, 'seven')").collect()


def _query(table: mw.Table) -> None:
    context = session_of("t", table)
    context.sql("SELECT v, count(*) FROM t WHERE id > 0 GROUP BY v").to_pylist()


def _write(table: mw.Table) -> None:
    flush_rows(table, ROWS, flush_attempts=1)


LIFE: dict[str, Callable[[mw.Table], object]] = {
    "write": _write,
    "INSERT": _insert,
    "SQL": _query,
    "scan": lambda table: table.scan(filter="v <> 'x'").read_all(),
    "get": lambda table: table.get([1, 2]),
    "merge": lambda table: table.merge(),
    "index": lambda table: table.create_index("v", "FTS", replace=True),
    "search": lambda table: table.full_text_search("v", "word", 2),
    "build_indexes": lambda table: table.build_indexes(),
    "checkpoint": lambda table: table.checkpoint(f"c{uuid4().hex}"),
    "changes": lambda table: table.changes().read_all(),
    "check": lambda table: table.check(),
    "overview": lambda table: repr(table.overview()),
    "gc": lambda table: table.collect_garbage(older_than=timedelta(0)),
}


def everything(error: BaseException) -> str:
    said = traceback.format_exception(error)
    seen: BaseException | None = error
    while seen is not None:
        said += [str(seen), repr(seen), repr(seen.args), *getattr(seen, "__notes__", ())]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(said)


def leaked(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.slow
def test_no_failure_at_any_point_of_a_life_says_a_secret(
    server: Talkative, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "memwal_sql")
    seed = random.randrange(1 << 30)
    draw = random.Random(seed)
    uri = f"s3://secrets/{uuid4().hex}"
    table = mw.create_table(uri, SCHEMA, "id", storage_options=server.options)
    _write(table)
    failures = 0
    steps = usual([*LIFE.items()], 7)
    for name, step in steps:
        for nth in (1, draw.randrange(2, 12)):
            server.seen, server.failing = 0, nth
            try:
                step(table)
            except Exception as error:
                failures += 1
                assert leaked(everything(error)) == [], f"{name} at {nth}, seed {seed}"
            finally:
                server.failing = None
    for nth in (1, 3):
        for call in (
            lambda: mw.open_table(uri, storage_options=server.options),
            lambda: mw.create_table(f"{uri}-2", SCHEMA, "id", storage_options=server.options),
            lambda: mw.enable(uri, "id", storage_options=server.options),
        ):
            server.seen, server.failing = 0, nth
            with pytest.raises(Exception) as caught:
                call()
            server.failing = None
            assert leaked(everything(caught.value)) == [], f"opening at {nth}"
    assert failures >= len(steps) and server.repeated > failures
    assert leaked(caplog.text) == leaked("".join(capfd.readouterr())) == []


def test_no_object_that_holds_options_shows_them(server: Talkative) -> None:
    uri = f"s3://secrets/{uuid4().hex}"
    table = mw.create_table(uri, SCHEMA, "id", storage_options=server.options)
    with table.writer() as writer:
        writer.upsert(ROWS)
        shown = [table, writer, table.snapshot(), table.pin(), table.overview(), table.context]
        shown += [open_store(uri, server.options), table.context.store, table.collector]
        shown += [table.tracker.loaded, table.tracker.loaded.dataset.session()]
        shown += [vars(open_store(uri, server.options))]
        session = session_of("t", table)
        for query in ("SELECT * FROM t", "SELECT * FROM t WHERE id = 1"):
            shown += session.sql(f"EXPLAIN VERBOSE {query}").to_pylist()
        assert leaked("\n".join(f"{one!r} {one!s}" for one in shown)) == []
    contexts = [one for one in gc.get_objects() if isinstance(one, TableContext)]
    assert contexts and leaked(repr(contexts)) == []


CALLS: dict[str, Callable[[str], object]] = {
    "open_table": lambda uri: mw.open_table(uri),
    "create_table": lambda uri: mw.create_table(uri, SCHEMA, primary_key="id"),
    "enable": lambda uri: mw.enable(uri, primary_key="id"),
    "upgrade": lambda uri: mw.upgrade(uri),
    "older_mem_wals": lambda uri: mw.older_mem_wals(uri),
}


@each("call", CALLS)
@each(
    "uri",
    [
        f"s3://{ID}:{PASSWORD}@bucket/t",
        f"s3://{ID}:wJalr/XUt/{PASSWORD}@bucket/t",
        f"s3://{PASSWORD}@bucket/t",
        f"S3://k:{PASSWORD}?x#y@bucket/t",
        f"gs://user:{PASSWORD}@bucket/t",
        f"az://account:{PASSWORD}@container/t",
        f"abfss://container:{PASSWORD}@account.dfs.core.windows.net/t",
        f"abfss://container@other:{PASSWORD}@account.dfs.core.windows.net/t",
        f"http://user:{PASSWORD}@127.0.0.1:9/t",
        f"hf://user:{PASSWORD}@datasets/t",
        f"memory://user:{PASSWORD}@name",
        f"file://user:{PASSWORD}@host/t",
        f"s3://bucket/t?X-Amz-Signature={PASSWORD}",
        f"az://container/t?sv=1&sig={PASSWORD}",
        f"s3://bucket/t#{PASSWORD}",
        f"s3://user:{PASSWORD}\n@bucket/t",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str, call: str) -> None:
    with pytest.raises(mw.InvalidCallError, match=r"@|\? or #") as caught:
        CALLS[call](uri)
    assert leaked(everything(caught.value).replace(uri, "")) == []


def test_what_looks_like_credentials_in_a_place_may_be_its_name(tmp_path: Path) -> None:
    for place in ("a@b", "a:b@c/d", "a://b:c@d"):
        table = mw.create_table(f"{tmp_path}/{place}", SCHEMA, primary_key="id")
        assert mw.open_table(table.uri).uri == os.path.realpath(f"{tmp_path}/{place}")
    container = "abfss://container@account.dfs.core.windows.net/a@b/t"
    assert canonical_uri(container) == container


@each("secret", [KEY, f" {TOKEN}", f"={KEY}"])
def test_the_command_line_repeats_no_option_that_it_can_t_read(secret: str) -> None:
    found = CliRunner().invoke(app, ["info", "s3://bucket/t", "-o", "aws_region=x", "-o", secret])
    assert found.exit_code == 2
    assert "number 2" in found.output and leaked(found.output.replace("\n", "")) == []


def test_secrets_are_found_in_the_forms_that_clients_quote_them_in() -> None:
    signature = "c2lnbmF0dXJl/SECRET+of=it"
    secrets.keep_secret([f"sv=2024&sig={signature}", "http://user:PassWord-SECRET@proxy:3128"])
    for text in (
        f"GET https://a.blob.core.windows.net/c?sig={signature}",
        "sig=c2lnbmF0dXJl%2FSECRET%2Bof%3Dit&x=1",
        "proxy user:PassWord-SECRET refused",
    ):
        assert "SECRET" not in secrets.redacted(text)
        assert "SECRET" not in str(mw.StoreUnavailableError(f"failed: {text}"))


def test_short_ones_are_blanked_where_the_server_answers(server: Talkative) -> None:
    """Elsewhere they are words that stand in texts by chance."""
    options = {**server.options, "aws_access_key_id": "q7Zx"}
    server.seen, server.failing = 0, 1
    with pytest.raises(mw.MemWalError, match=r"Credential=\*\*\*/") as caught:
        open_store("s3://secrets/short", options).get("x")
    server.failing = None
    assert "q7Zx" not in str(caught.value)
    assert secrets.redacted("sent q7Zx, abc", ["q7Zx", "abc"]) == "sent ***, abc"


def test_the_cause_that_a_traceback_shows_is_cleaned_too() -> None:
    secrets.keep_secret([KEY])
    with pytest.raises(mw.StoreUnavailableError) as caught:
        try:
            raise ValueError(f"deep {KEY}")
        except ValueError as deep:
            try:
                raise OSError(f"Lance said {KEY}") from deep
            except OSError as error:
                raise mw.StoreUnavailableError("it failed") from error
    assert leaked(everything(caught.value)) == []


def test_as_many_secrets_are_kept_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_secrets", {})
    for number in range(1100):
        secrets.keep_secret([f"secret-number-{number:06}"])
    assert len(secrets._secrets) == 1024
    assert (
        secrets.redacted("secret-number-001099 secret-number-000000") == "*** secret-number-000000"
    )
    secrets.keep_secret(["short"])
    assert secrets.redacted("short") == "short"
