"""Object stores: where the files that Lance does not manage are kept.

`open_store` gives the store of a table, for any URI that Lance takes. Every write that decides
something is a `put_if_absent`; `put` is for hints alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.objects.commit_log import open_commit_log
from memwal_sql.storage.objects.local import LocalStore
from memwal_sql.storage.objects.memory import SCHEMES, lance_uri, memory_store
from memwal_sql.storage.objects.options import (
    COMMIT_LOG,
    PREFIXES,
    check_environment,
    checked_options,
    no_options,
    split_options,
)
from memwal_sql.storage.objects.protocol import ObjectMeta, ObjectStore
from memwal_sql.storage.objects.remote import RemoteStore
from memwal_sql.storage.objects.two_phase import TwoPhaseStore

__all__ = [
    "ObjectMeta",
    "ObjectStore",
    "canonical_uri",
    "lance_uri",
    "open_store",
    "refuse_linked_root",
]

# Lance takes a URI with one of these for a path.
_NO_HOST = re.compile(r"[ :<>\[\]\\^|]")
_LOCAL_SCHEMES = ("file", "file-object-store")
# Hadoop, and so Spark, writes URIs of local files with one slash.
_HADOOP = re.compile(r"file:(?=/(?!/))", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_QUERY = re.compile(r"[?#]")
# The container of abfss stands where others have a user.
_CONTAINER = re.compile(r"abfss://[^/@:?#]+@[^/@:]+(/.*)?", re.IGNORECASE)


def open_store(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
) -> ObjectStore:
    """The store rooted at `uri`; nothing is read or written.

    `storage_options` are those given to Lance, and `memwal_commit_log`, which names the commit log
    of a store that can't put if absent (see `commit_log.open_commit_log`). Raises
    `InvalidCallError` for an option that no store knows; the message names the key, never its
    value.
    """
    text = canonical_uri(uri)
    options = checked_options(storage_options)
    log = options.pop(COMMIT_LOG, None)
    store = _plain_store(text, options)
    return store if log is None else TwoPhaseStore(store, open_commit_log(log, store.uri))


def _plain_store(text: str, options: Mapping[str, str]) -> ObjectStore:
    scheme = _scheme(text)
    if not scheme:
        no_options(text, options)
        return LocalStore(text)
    if scheme in SCHEMES:
        no_options(text, options)
        return memory_store(text)
    check_environment(scheme)
    return RemoteStore(text, split_options(options, scheme))


def canonical_uri(uri: str | os.PathLike[str]) -> str:
    """One spelling for one place: folders as absolute paths without links, whatever the working
    folder is later; other URIs without a slash at their end.

    Raises `InvalidCallError` for one that names no place, or holds credentials, which the message
    does not repeat.
    """
    text = os.fspath(uri) if isinstance(uri, str | os.PathLike) else uri
    if not isinstance(text, str):
        raise InvalidCallError(f"uri={uri!r} must be a path or a URI, as text or as a pathlib.Path")
    text = _spelled(text)
    _check_credentials(text)
    _check_characters(text)  # before urlsplit, which leaves some out without a word
    scheme = _scheme(text)
    if scheme in SCHEMES and _NO_HOST.search(text.partition("://")[2].partition("/")[0]):
        raise InvalidCallError(f"{text!r}: give letters, digits, dots, dashes and underscores")
    if scheme in ("", *_LOCAL_SCHEMES):
        return os.path.realpath(_local_path(text, scheme))
    if scheme not in (*SCHEMES, *PREFIXES):
        places = ", ".join(
            f"{scheme}://" for scheme in (*PREFIXES, *_LOCAL_SCHEMES[:1], *SCHEMES[:1])
        )
        raise InvalidCallError(
            f"{text!r}: no tables are kept at {scheme}://; give a path, or a URI with {places}"
        )
    place = text.partition("://")[2].rstrip("/")
    if not place.strip("/"):
        raise InvalidCallError(f"{text!r} names no table: give a name after the ://")
    if "//" in place:
        raise InvalidCallError(f"{text!r} has a folder without a name: write one / instead of //")
    return f"{SCHEMES[0] if scheme in SCHEMES else scheme}://{place}"


def refuse_linked_root(uri: str | os.PathLike[str]) -> None:
    """Raise InvalidCallError where the folder that is named is a symbolic link: for those who
    delete a table, as the link would be left, and whose files they are is another's to say."""
    text = _spelled(os.fspath(uri))
    scheme = _scheme(text)
    if scheme not in ("", *_LOCAL_SCHEMES):
        return
    path = os.path.abspath(_local_path(text, scheme))
    if os.path.islink(path):
        raise InvalidCallError(
            f"{path} is a symbolic link to {os.path.realpath(path)}, and nothing was deleted: drop "
            "the table there by its own place, or remove the link, which leaves the table"
        )


def _local_path(text: str, scheme: str) -> str:
    try:
        path = unquote(urlsplit(text).path) if scheme else text
    except ValueError as error:
        raise InvalidCallError(f"{text!r} is not a URI: {error}") from None
    if not path or (not scheme and text.startswith("file:")):
        raise InvalidCallError(
            f"{text!r} names no folder: give a path, or a URI such as file:///data/events"
        )
    _check_characters(path)
    return path


def _spelled(text: str) -> str:
    """A URI of a local folder with the slashes that others write."""
    start = _HADOOP.match(text)
    return text if start is None else f"file://{text[start.end() :]}"


def _scheme(text: str) -> str:
    """The scheme of a URI in lower case; a path may have "://" in it too."""
    scheme, separator, _ = text.partition("://")
    return scheme.lower() if separator and _SCHEME.fullmatch(scheme) else ""


def _check_credentials(text: str) -> None:
    """What stands before an @ or after a ? may be a secret: nothing of it is said again."""
    scheme, rest = _scheme(text), text.partition("://")[2]
    if not scheme:
        return
    place = _QUERY.split(rest, maxsplit=1)[0]
    authority = place.partition("/")[0]
    _, at, after = rest.rpartition("@")
    if at and ("@" in authority or ":" in authority) and not _CONTAINER.fullmatch(text):
        raise InvalidCallError(
            f"{scheme}://{_QUERY.split(after, maxsplit=1)[0]} was given with a user or a password "
            "before the @: leave that out, and give credentials as storage options or in the "
            "environment"
        )
    if len(place) < len(rest):
        raise InvalidCallError(
            f"{scheme}://{place} has a ? or # after it, where a URI does not name a place any "
            "more: leave it out, or give a path without a scheme"
        )


def _check_characters(place: str) -> None:
    odd = sorted({c for c in place if c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff"})
    if odd:
        raise InvalidCallError(
            f"{place!r} has the characters {odd}: Lance takes no control characters in a path, and "
            "no bytes that are not UTF-8"
        )
