"""Credentials are in nothing that is said."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import datafusion
import lance
import pytest

import memwal_sql as mw
from tests.bad_input.rows import SCHEMA

SECRET = "wJalrXUtnFEMI-SECRET-bPxRfiCYEXAMPLEKEY"


def _everything_said(error: BaseException) -> str:
    said = []
    seen: BaseException | None = error
    while seen is not None:
        said += [str(seen), repr(seen), repr(seen.args)]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(said)


def test_credentials_are_in_no_error_log_or_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    options = {
        "aws_access_key_id": "AKIDSECRET",
        "aws_secret_access_key": SECRET,
        "aws_session_token": SECRET,
        "aws_region": "us-east-1",
        "aws_endpoint": "http://127.0.0.1:9",
        "allow_http": "true",
        "timeout": "1s",
        "connect_timeout": "1s",
        "client_max_retries": "0",
        "max_retries": "0",
    }
    said = ""
    for uri in ("memory://secret-table", str(tmp_path / "t"), "s3://bucket/table"):
        for call in (
            lambda uri=uri: mw.open_table(uri, storage_options=options),
            lambda uri=uri: mw.create_table(uri, SCHEMA, primary_key="id", storage_options=options),
        ):
            with pytest.raises(Exception) as caught:
                call()
            said += _everything_said(caught.value)
    said += caplog.text + "".join(capfd.readouterr())
    assert SECRET not in said and "AKIDSECRET" not in said


def test_credentials_are_in_no_repr_and_no_plan(table: Any, uri: str) -> None:
    from_context = table._context
    with_secret = from_context.__class__(
        **{
            **{name: getattr(from_context, name) for name in from_context.__dataclass_fields__},
            "storage_options": {"aws_secret_access_key": SECRET},
        }
    )
    secret = mw.Table(with_secret, lance.dataset(uri))
    session = datafusion.SessionContext()
    mw.register(session, "t", secret)
    said = [repr(secret), str(secret), repr(with_secret), repr(secret.snapshot("manifest"))]
    said += [
        str(session.sql(sql).to_arrow_table().to_pydict())
        for sql in ("EXPLAIN SELECT * FROM t", "EXPLAIN SELECT * FROM t WHERE id = 1")
    ]
    assert SECRET not in "\n".join(said)
