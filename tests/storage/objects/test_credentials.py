"""Credentials are in nothing that is said."""

from __future__ import annotations

import logging
import os
import traceback
from pathlib import Path

import pytest

import memwal_sql as mw
from memwal_sql.storage.objects.open import canonical_uri
from tests.each import each
from tests.model.small_rows import SCHEMA

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


CALLS = {
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
        f"s3://AKIDSECRET:{SECRET}@bucket/t",
        f"s3://AKIDSECRET:wJalr/XUt/{SECRET}@bucket/t",
        f"s3://{SECRET}@bucket/t",
        f"S3://k:{SECRET}?x#y@bucket/t",
        f"gs://user:{SECRET}@bucket/t",
        f"az://account:{SECRET}@container/t",
        f"abfss://container:{SECRET}@account.dfs.core.windows.net/t",
        f"abfss://container@other:{SECRET}@account.dfs.core.windows.net/t",
        f"http://user:{SECRET}@127.0.0.1:9/t",
        f"hf://user:{SECRET}@datasets/t",
        f"memory://user:{SECRET}@name",
        f"file://user:{SECRET}@host/t",
        f"s3://bucket/t?X-Amz-Signature={SECRET}",
        f"az://container/t?sv=1&sig={SECRET}",
        f"s3://bucket/t#{SECRET}",
        f"s3://user:{SECRET}\n@bucket/t",
    ],
)
def test_credentials_in_a_uri_are_refused_and_not_repeated(uri: str, call: str) -> None:
    with pytest.raises(mw.InvalidCallError, match=r"@|\? or #") as caught:
        CALLS[call](uri)
    said = _everything_said(caught.value) + "".join(traceback.format_exception(caught.value))
    assert SECRET not in said.replace(uri, "") and "AKIDSECRET" not in said


@pytest.mark.parametrize("place", ["a@b", "a:b@c/d", "a://b:c@d"])
def test_a_folder_may_have_any_name(tmp_path: Path, place: str) -> None:
    table = mw.create_table(f"{tmp_path}/{place}", SCHEMA, primary_key="id")
    assert mw.open_table(table.uri).uri == os.path.realpath(f"{tmp_path}/{place}")


def test_the_container_of_azure_is_no_user() -> None:
    uri = "abfss://container@account.dfs.core.windows.net/a@b/t"
    assert canonical_uri(uri) == uri
