"""Every spelling of every storage option that Lance takes, for Lance and for our own files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from uuid import uuid4

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.options import CLIENT_KEYS, PREFIXES, SplitOptions
from memwal_sql.storage.objects.remote import RemoteStore
from tests.each import each
from tests.model.s3 import s3_server
from tests.model.writing import flush_rows

# What object_store knows, by the scheme of the URI; each but the last few also without its prefix.
OWN = {
    "s3": """
        aws_access_key_id aws_secret_access_key aws_default_region aws_region aws_bucket
        aws_bucket_name aws_endpoint_url aws_endpoint aws_session_token aws_token
        aws_virtual_hosted_style_request aws_s3_express aws_imdsv1_fallback aws_metadata_endpoint
        aws_unsigned_payload aws_checksum_algorithm aws_container_credentials_relative_uri
        aws_container_credentials_full_uri aws_container_authorization_token_file
        aws_web_identity_token_file aws_role_arn aws_role_session_name aws_endpoint_url_sts
        aws_skip_signature aws_copy_if_not_exists aws_conditional_put aws_disable_tagging
        aws_request_payer aws_server_side_encryption aws_sse_kms_key_id aws_sse_bucket_key_enabled
        aws_sse_customer_key_base64
    """,
    "gs": """
        google_service_account google_service_account_path google_service_account_key google_bucket
        google_bucket_name google_base_url google_application_credentials google_skip_signature
    """,
    "az": """
        azure_storage_account_key azure_storage_account_name azure_client_id azure_client_secret
        azure_tenant_id azure_authority_id azure_authority_host azure_storage_sas_key
        azure_storage_sas_token azure_storage_token azure_storage_use_emulator azure_endpoint
        azure_msi_endpoint azure_identity_endpoint azure_object_id azure_msi_resource_id
        azure_federated_token_file azure_use_fabric_endpoint azure_use_azure_cli
        azure_skip_signature azure_container_name azure_disable_tagging
        azure_fabric_token_service_url azure_fabric_workload_host azure_fabric_session_token
        azure_fabric_cluster_identifier
    """,
}
ONLY_PREFIXED = {"s3": ["aws_endpoint_url_s3"], "gs": [], "az": []}
ODD_VALUES = ("", "true", "5s", "1", "x", "http://x.y/", "{}", "\x00", "\u00e9")
NEEDED = {"az": {"azure_storage_account_name": "account"}}


def names(scheme: str) -> Iterator[str]:
    prefix = PREFIXES[scheme]
    own = OWN[scheme].split()
    for name in (*own, *(one.removeprefix(prefix) for one in own), *ONLY_PREFIXED[scheme]):
        # Azure's storage_ stands only behind its azure_.
        if not name.startswith("storage_"):
            yield name
    for key in sorted(CLIENT_KEYS):
        yield from (key, prefix + key)


# Ends the making of a client when all options have been read: it takes 50 ms otherwise.
BAD_PROXY = "http://["


@pytest.mark.parametrize("scheme", OWN)
def test_no_spelling_and_no_value_of_an_option_is_more_than_a_bad_call(
    scheme: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """obstore panics, with a BaseException, where the client's settings stand among the others."""
    for name in (one for one in names(scheme) if not one.endswith("proxy_url")):
        for spelt in {name, name.upper(), name.title()}:
            for value in ODD_VALUES:
                options = {"proxy_url": BAD_PROXY, spelt: value, **NEEDED.get(scheme, {})}
                with pytest.raises(InvalidCallError) as caught:
                    open_store(f"{scheme}://place/t", options)
                said = str(caught.value)
                assert "is not valid" not in said and "can't read" not in said, (spelt, value)
    assert "panicked" not in capfd.readouterr().err


@each("scheme", OWN)
def test_a_setting_of_the_client_is_the_same_in_every_spelling(scheme: str) -> None:
    spellings = ("allow_http", "ALLOW_HTTP", f"{PREFIXES[scheme]}allow_http")
    for spelt in (*spellings, f"{PREFIXES[scheme]}Allow_Http".title()):
        store = open_store(f"{scheme}://place/t", {**NEEDED.get(scheme, {}), spelt: "true"})
        assert isinstance(store, RemoteStore)
        assert dict(store._options.client) == {"allow_http": "true"}
    retries = {"client_max_retries": "3", "client_retry_timeout": "9s"}
    found = open_store(f"{scheme}://place/t", {**NEEDED.get(scheme, {}), **retries})
    assert isinstance(found, RemoteStore)
    assert (found._options.max_retries, found._options.retry_timeout_seconds) == (3, 9)


def test_the_prefix_of_another_cloud_is_not_passed_over() -> None:
    with pytest.raises(InvalidCallError, match="'aws_allow_http' is not valid"):
        open_store("gs://bucket/t", {"aws_allow_http": "true"})


def test_what_else_makes_obstore_panic_is_a_bad_call() -> None:
    """A setting of the client that nobody takes for one, as those of a later version."""
    with pytest.raises(InvalidCallError, match=r"can't read one of .*'allow_http'"):
        RemoteStore("s3://bucket/t", SplitOptions({"allow_http": "true"}, {}))


def test_two_spellings_with_two_values_are_refused() -> None:
    with pytest.raises(InvalidCallError, match="'timeout' and 'aws_timeout' are two spellings"):
        open_store("s3://bucket/t", {"timeout": "1s", "aws_timeout": "2s"})
    with pytest.raises(InvalidCallError, match="'AWS_REGION' and 'aws_region' are two spellings"):
        open_store("s3://bucket/t", {"AWS_REGION": "one", "aws_region": "two"})
    open_store("s3://bucket/t", {"timeout": "1s", "aws_timeout": "1s"})


def test_options_are_texts() -> None:
    for options in ({"aws_region": 5}, {5: "x"}, ["aws_region=x"]):
        with pytest.raises(InvalidCallError, match=r"texts?\b"):
            mw.open_table("s3://bucket/t", storage_options=options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3_server("spellings") as options:
        yield {**options, "client_max_retries": "1", "timeout": "20s"}


@pytest.mark.slow
@each("spelling", ["upper", "bare", "s3_endpoint"])
def test_lance_and_our_own_files_take_the_same_spellings(
    server: dict[str, str], spelling: str
) -> None:
    def spelt(key: str) -> str:
        own = key.startswith("client_")  # of Lance
        match spelling:
            case "upper":
                return key if own else f"aws_{key.removeprefix('aws_')}".upper()
            case "bare":
                return key if own else key.removeprefix("aws_").title()
        return {"aws_endpoint": "aws_endpoint_url_s3"}.get(key, key)

    options = {spelt(key): value for key, value in server.items()}
    if spelling == "s3_endpoint":
        options["aws_endpoint"] = "http://127.0.0.1:9"  # of other services of AWS
    uri = f"s3://spellings/{uuid4().hex}"
    table = mw.create_table(uri, pa.schema({"id": pa.int64()}), "id", storage_options=options)
    flush_rows(table, {"id": [1]})
    assert mw.open_table(uri, storage_options=options).scan().read_all().num_rows == 1


SECRET = "of-a-file-with-a-token"
SENT = {
    "s3": ("aws_access_key_id", "AWS_SECRET_ACCESS_KEY", "session_token", "region", "user_agent"),
    "gs": ("google_bucket", "google_service_account"),
    "az": ("azure_storage_account_key", "azure_storage_sas_token", "token"),
}
WITH_CONTROLS = [f"{SECRET}{end}" for end in ("\n", "\r\n", "\x00", "\x7f", "\tx")]


@each("scheme", SENT)
def test_a_value_with_a_control_character_is_refused_by_its_key_alone(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clients panicked in their first request, which `except Exception` does not catch."""
    uri, ctx = f"{scheme}://bucket/t", mw.SessionContext()
    for value in WITH_CONTROLS:
        for key in SENT[scheme]:
            calls: list[Callable[[], object]] = [
                partial(mw.open_table, uri, storage_options={key: value}),
                partial(mw.catalog, ctx, uri, "c", storage_options={key: value}),
                partial(mw.drop_table, uri, storage_options={key: value}),
            ]
            for call in calls:
                with pytest.raises(InvalidCallError, match=f"'{key}' has a control") as refused:
                    call()
                assert SECRET not in str(refused.value)
        if "\x00" not in value:  # which no variable has
            name = f"{PREFIXES[scheme].upper()}ANYTHING"
            with monkeypatch.context() as set_here:
                set_here.setenv(name, value)
                with pytest.raises(InvalidCallError, match=f"variable {name} has a control"):
                    open_store(uri)


def test_an_option_of_a_statement_has_no_control_character() -> None:
    statement = (
        f"CREATE EXTERNAL TABLE t (id BIGINT NOT NULL PRIMARY KEY) STORED AS MEMWAL "
        f"LOCATION 's3://bucket/t' OPTIONS ('storage.aws_session_token' '{SECRET}\n')"
    )
    with pytest.raises(InvalidCallError, match="'aws_session_token' has a control") as refused:
        mw.SessionContext().sql(statement)
    assert SECRET not in str(refused.value)


def test_an_address_is_one_and_a_document_may_have_lines() -> None:
    for key in ("endpoint", "aws_endpoint_url_s3", "proxy_url"):
        for value in ("http://a b", "http://\u00fc.example"):
            with pytest.raises(InvalidCallError, match=f"'{key}' must be an address"):
                open_store("s3://bucket/t", {key: value})
    key = '{\n"private_key": "-----BEGIN"}'
    with pytest.raises(InvalidCallError, match="can't open gs://bucket/t"):  # read, and no key
        open_store("gs://bucket/t", {"google_service_account_key": key})
