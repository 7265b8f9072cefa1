"""`storage_options`: one dictionary for Lance and for us, divided as obstore takes it.

Lance takes every option of object_store in any case, with and without the name of the cloud in
front of it. obstore has the client's settings in a dictionary of their own, and panics where one
stands among the others. Messages name keys, never values: a value may be a secret.
"""

from __future__ import annotations

import os
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
_ADDRESS = re.compile("endpoint|url")
# Options whose values are documents of several lines, and are not sent.
_DOCUMENT = re.compile("service_account_key|certificate")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# Options that say where, and not who: their values may stand in messages.
_PUBLIC = re.compile("endpoint|region|bucket")
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
    """A copy of what a caller gives. Raises InvalidCallError where a key or value is not a text, or
    has characters that no store takes."""
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
        _check_characters(f"storage option {key!r}", key, value)
    return dict(options or {})


def check_environment(scheme: str) -> None:
    """As `checked_options`, for the variables that clients of this scheme's stores read."""
    prefix = PREFIXES[scheme].upper()
    for name, value in os.environ.items():
        if name.upper().startswith(prefix):
            _check_characters(f"the environment variable {name}", name, value)


def _check_characters(what: str, name: str, value: str) -> None:
    """Clients panic where a value can't be sent, as with the end of a line that a file has after a
    token."""
    if _CONTROL.search(value) and not _DOCUMENT.search(name.lower()):
        raise InvalidCallError(
            f"{what} has a control character, such as the end of a line: leave it out, as by "
            "value.strip()"
        )
    if _ADDRESS.search(name.lower()) and not (value.isascii() and " " not in value):
        raise InvalidCallError(f"{what} must be an address of ASCII characters without spaces")


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
            raise InvalidCallError(
                f"storage option {name!r} can't be set by a statement: it may name a file, or a "
                "server, which would get the credentials of this process. Set it in the "
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


def secret_values(options: Mapping[str, str], scheme: str) -> tuple[str, ...]:
    """The values that may be credentials: all but those of the client, of endpoints, regions and
    buckets, as far as no user name or query can be in them."""

    def is_public(key: str, value: str) -> bool:
        bare = key.lower().removeprefix(PREFIXES.get(scheme, ""))
        of_client = _ALIASES.get(bare, bare) in CLIENT_KEYS | _RETRY_KEYS | _LANCE_KEYS
        public = of_client or _PUBLIC.search(bare) is not None or value in ("true", "false")
        return public and not {"@", "?"} & set(value)

    return tuple(value for key, value in options.items() if not is_public(key, value))


def _whole_number(key: str, value: str) -> int:
    text = value.removesuffix("s")
    if not text.isdecimal() or not text.isascii():
        raise InvalidCallError(f"storage option {key!r} must be a whole number")
    return int(text)
