"""`storage_options`: one dictionary for Lance and for us, divided as obstore takes it.

Lance takes every option of object_store in any case, with and without the name of the cloud in
front of it. obstore has the client's settings in a dictionary of their own, and panics where one
stands among the others. Messages name keys, never values: a value may be a secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from memwal_sql.errors import InvalidCallError

COMMIT_LOG = "memwal_commit_log"
"""Our own option: what decides who created an object, for stores without put-if-absent."""

# Scheme of a URI -> prefixes that an option's name may have.
PREFIXES = {"s3": "aws_", "gs": "google_", "az": "azure_", "abfss": "azure_"}

# object_store's client settings, which Lance takes among the others.
CLIENT_KEYS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_max_frame_size",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "timeout",
        "user_agent",
    }
)
_ALIASES = {"request_timeout": "timeout"}
_RETRY_KEYS = frozenset({"client_max_retries", "client_retry_timeout"})
# Lance's own: they say how Lance reads, and mean nothing to other clients.
_LANCE_KEYS = frozenset({"download_retry_count", "expires_at_millis", "refresh_offset_millis"})
_LANCE_PREFIX = "lance_"
# The endpoint of S3 alone, which goes before that of all services; obstore knows the latter only.
_S3_ENDPOINT = "aws_endpoint_url_s3"
_ENDPOINTS = frozenset({"aws_endpoint", "aws_endpoint_url", "endpoint", "endpoint_url"})
_ADDRESSES = _ENDPOINTS | {
    "azure_endpoint",
    "azure_storage_endpoint",
    "base_url",
    "google_base_url",
}
# Options that say where and how, and not who: their values may stand in messages.
_NO_SECRETS = (CLIENT_KEYS - {"proxy_url"}) | {
    "account_name",
    "bucket",
    "bucket_name",
    "checksum_algorithm",
    "conditional_put",
    "container_name",
    "copy_if_not_exists",
    "default_region",
    "disable_tagging",
    "endpoint",
    "endpoint_url",
    "endpoint_url_s3",
    "region",
    "request_payer",
    "s3_express",
    "server_side_encryption",
    "skip_signature",
    "storage_account_name",
    "storage_use_emulator",
    "unsigned_payload",
    "use_azure_cli",
    "use_emulator",
    "use_fabric_endpoint",
    "virtual_hosted_style_request",
}
# Options that a statement may set, in any spelling, as they choose no server: a region and an
# account are parts of a server's name.
_IN_STATEMENTS = frozenset(
    {
        "access_key",
        "access_key_id",
        "account_key",
        "account_name",
        "bearer_token",
        "checksum_algorithm",
        "client_id",
        "client_secret",
        "conditional_put",
        "connect_timeout",
        "copy_if_not_exists",
        "default_region",
        "disable_tagging",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "randomize_addresses",
        "read_timeout",
        "region",
        "request_payer",
        "s3_express",
        "sas_key",
        "sas_token",
        "secret_access_key",
        "session_token",
        "skip_signature",
        "tenant_id",
        "timeout",
        "token",
        "unsigned_payload",
        "virtual_hosted_style_request",
        *_RETRY_KEYS,
    }
)
_OF_CLOUDS = ("azure_storage_", "storage_", *dict.fromkeys(PREFIXES.values()))
_IN_HOST_NAMES = frozenset({"account_name", "default_region", "region"})
_HOST_PART = re.compile(r"[A-Za-z0-9-]*")
# Names that a misspelt option, or one of another library, may have meant.
_COMMON = (
    "aws_access_key_id",
    "aws_endpoint",
    "aws_region",
    "aws_secret_access_key",
    "aws_session_token",
    "aws_virtual_hosted_style_request",
    "azure_client_id",
    "azure_client_secret",
    "azure_storage_account_key",
    "azure_storage_account_name",
    "azure_storage_sas_token",
    "azure_tenant_id",
    "google_application_credentials",
    "google_service_account",
    "google_service_account_key",
    *sorted(CLIENT_KEYS | _RETRY_KEYS),
)
_OTHER_NAMES = (("s3_", "aws_"), ("gcs_", "google_"), ("adls_", "azure_storage_"))


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """Options by their receiver, with the keys that obstore takes. Retries are counts and seconds.
    Never shown; `secrets` are the values that no text may repeat, `endpoint` is the server's
    address where one is given."""

    config: Mapping[str, str] = field(repr=False)
    client: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    endpoint: str = ""
    max_retries: int | None = None
    retry_timeout_seconds: int | None = None


def checked_options(options: Mapping[str, str] | None) -> dict[str, str]:
    """A copy of what a caller gives. Raises InvalidCallError where a key or value is not a text."""
    if options is not None and not isinstance(options, Mapping):
        raise InvalidCallError(
            f"storage_options must be a dictionary of texts, not {type(options).__name__}"
        )
    for key, value in (options or {}).items():
        if not isinstance(key, str):
            raise InvalidCallError(f"a storage option has the name {key!r}: names are texts")
        if not isinstance(value, str):
            raise InvalidCallError(
                f"storage option {key!r} must be a text, not {type(value).__name__}: "
                'write "true", "30s", "5"'
            )
    return dict(options or {})


def split_options(options: Mapping[str, str], scheme: str) -> SplitOptions:
    """Divide Lance's `storage_options` for a URI with this scheme; what is left as `config` the
    store itself must know. Raises InvalidCallError where one option is given in two spellings."""
    config: dict[str, str] = {}
    client: dict[str, str] = {}
    retries: dict[str, int] = {}
    spelt: dict[str, str] = {}
    s3_endpoint = ""
    for name, value in options.items():
        key = name.lower()
        bare = key.removeprefix(PREFIXES[scheme])
        bare = _ALIASES.get(bare, bare)
        option = bare if bare in CLIENT_KEYS else key
        if (other := spelt.setdefault(option, name)) != name and options[other] != value:
            raise InvalidCallError(
                f"storage options {other!r} and {name!r} are two spellings of one: give one value"
            )
        if option in CLIENT_KEYS:
            client[option] = value
        elif key in _RETRY_KEYS:
            retries[key] = _whole_number(name, value)
        elif key == _S3_ENDPOINT and scheme == "s3":
            s3_endpoint = value
        elif key not in _LANCE_KEYS and not key.startswith(_LANCE_PREFIX):
            config[key] = value
    if s3_endpoint:
        config = {key: value for key, value in config.items() if key not in _ENDPOINTS}
        config["aws_endpoint"] = s3_endpoint
    return SplitOptions(
        config,
        client,
        secret_values(options, scheme),
        next((value for key, value in config.items() if key in _ADDRESSES), ""),
        retries.get("client_max_retries"),
        retries.get("client_retry_timeout"),
    )


def check_statement_options(options: Mapping[str, str]) -> None:
    """Refuse options by which a text of SQL could have the credentials of the environment sent to a
    server of its choice, or files of the process read and made: what is not known to do neither.

    Raises InvalidCallError naming the option, and what allows it.
    """
    for name, value in options.items():
        bare = name.lower()
        for prefix in _OF_CLOUDS:
            bare = bare.removeprefix(prefix)
        bare = _ALIASES.get(bare, bare)
        if bare in _IN_HOST_NAMES and not _HOST_PART.fullmatch(value):
            raise InvalidCallError(f"storage option {name!r} must be letters, digits and dashes")
        if bare not in _IN_STATEMENTS:
            likely = likely_name(name)
            meant = f" ({likely!r} is one)" if likely and likely != name.lower() else ""
            raise InvalidCallError(
                f"storage option {name!r} can't be set by a statement{meant}: it may name a "
                "file, or a server, which would get the credentials of this process. Set it in the "
                "environment, or give it to mw.register or mw.create_table"
            )


def no_options(uri: str, options: Mapping[str, str]) -> None:
    """Refuse options that mean nothing for a local or in-memory table."""
    for name in options:
        key = name.lower()
        taken_keys = CLIENT_KEYS | _RETRY_KEYS | _LANCE_KEYS
        if _ALIASES.get(key, key) not in taken_keys and not key.startswith(_LANCE_PREFIX):
            raise InvalidCallError(
                f"storage option {name!r} means nothing for {uri!r}, no cloud store; drop it"
            )


def likely_name(key: str) -> str | None:
    """The option that was meant by an unknown name, if one looks alike: `s3.endpoint` of pyiceberg
    is `aws_endpoint`."""
    text = key.lower().replace("-", "_").replace(".", "_")
    for theirs, ours in _OTHER_NAMES:
        if text.startswith(theirs):
            text = ours + text.removeprefix(theirs)
    return next(iter(difflib.get_close_matches(text, _COMMON, 1, 0.8)), None)


def secret_values(options: Mapping[str, str], scheme: str) -> tuple[str, ...]:
    """The values that may be credentials."""
    return tuple(
        value
        for key, value in options.items()
        if key.lower() not in _RETRY_KEYS | _LANCE_KEYS and not _is_public(key, value, scheme)
    )


def _is_public(key: str, value: str, scheme: str) -> bool:
    bare = key.lower().removeprefix(PREFIXES.get(scheme, ""))
    return _ALIASES.get(bare, bare) in _NO_SECRETS and not {"@", "?"} & set(value)


def _whole_number(key: str, value: str) -> int:
    text = value.removesuffix("s")
    if not text.isdecimal() or not text.isascii():
        raise InvalidCallError(f"storage option {key!r} must be a whole number")
    return int(text)
