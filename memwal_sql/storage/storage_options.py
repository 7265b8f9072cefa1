"""`storage_options`: one dictionary for Lance and for us, divided as obstore takes it.

Messages name keys, never values: a value may be a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memwal_sql.errors import InvalidCallError

COMMIT_LOG = "memwal_commit_log"
"""Our own option: what decides who created an object, for stores without put-if-absent."""

_SHORTEST_SECRET = 4
# object_store's client settings, which Lance takes among the others.
_CLIENT_KEYS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
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


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """Options by their receiver. Retries are counts and seconds. Never shown."""

    config: Mapping[str, str] = field(repr=False)
    client: Mapping[str, str] = field(repr=False)
    max_retries: int | None = None
    retry_timeout_seconds: int | None = None


def split_options(options: Mapping[str, str]) -> SplitOptions:
    """Divide Lance's `storage_options`; what is left as `config` the store itself must know."""
    config: dict[str, str] = {}
    client: dict[str, str] = {}
    retries: dict[str, int] = {}
    for given, value in options.items():
        key = _ALIASES.get(given.lower(), given.lower())
        if key in _CLIENT_KEYS:
            client[key] = str(value)
        elif key in _RETRY_KEYS:
            retries[key] = _whole_number(given, value)
        elif key not in _LANCE_KEYS:
            config[key] = str(value)
    return SplitOptions(
        config,
        client,
        retries.get("client_max_retries"),
        retries.get("client_retry_timeout"),
    )


def no_options(uri: str, options: Mapping[str, str] | None) -> None:
    """Refuse options that mean nothing for a local or in-memory table."""
    for key in options or {}:
        if _ALIASES.get(key.lower(), key.lower()) not in _CLIENT_KEYS | _RETRY_KEYS | _LANCE_KEYS:
            raise InvalidCallError(
                f"storage option {key!r} means nothing for {uri!r}, no cloud store; drop it"
            )


def _whole_number(key: str, value: str) -> int:
    text = str(value).removesuffix("s")
    if not text.isdecimal():
        raise InvalidCallError(f"storage option {key!r} must be a whole number")
    return int(text)


def redacted(text: str, options: Mapping[str, str]) -> str:
    """`text` with the values of `options` blanked out, as some of them are credentials."""
    for value in sorted(options.values(), key=len, reverse=True):
        if len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text
