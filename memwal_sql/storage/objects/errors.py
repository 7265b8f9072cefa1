"""Errors of stores and their clients, with remedies for the caller.

Lance and obstore are both built on object_store, whose errors are told apart by their text only.
"""

from __future__ import annotations

import re

from memwal_sql.errors import (
    InvalidCallError,
    MemWalError,
    StoreUnavailableError,
    UnsupportedError,
)
from memwal_sql.storage.objects.options import COMMIT_LOG

# Lance's text for a file that could not get its name.
_NO_LINKS = re.compile(r"Unable to rename file: .*\(os error (1|38|95)\)")
# Faults of the call: the same call never works.
_CALLS = {
    r"NoSuchBucket|ContainerNotFound|specified (bucket|container) does not exist": (
        "there is no such bucket: make it first, or mend the URI"
    ),
    r"HTTP error: builder error|URL scheme is not allowed": (
        "no request could be made; for an endpoint that begins with http:// give the storage "
        'option allow_http="true"'
    ),
    r"Failed to resolve region|incorrectly configured region|PermanentRedirect": (
        "the region of the bucket is not known: give the storage option aws_region"
    ),
}
# Faults that may pass, each with its usual cause.
_MOMENTS = {
    r"169\.254\.169\.254|metadata\.google\.internal|Failed to get \w+ credentials": (
        "no credentials were found: give them as storage options or in the environment"
    ),
    r"InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|AccessDenied|AuthenticationFailed|"
    r"Unauthenticated|PermissionDenied|status code: 40[13]": "check the credentials and rights",
}


def store_error(place: str, text: str, message: str) -> MemWalError:
    """The error for `place`, where a client gave up with `text`, of which `message` is repeated:
    InvalidCallError where the call itself is wrong, else StoreUnavailableError."""
    if _NO_LINKS.search(text):
        return no_hard_links(place)
    for pattern, remedy in _CALLS.items():
        if re.search(pattern, text):
            return InvalidCallError(f"{place}: {remedy}: {message}")
    return StoreUnavailableError(f"{place}: {message}{remedy_of(text)}; try again")


def remedy_of(text: str) -> str:
    """A clause that names what helps against a failure of the moment; often there is none."""
    remedies = (remedy for pattern, remedy in _MOMENTS.items() if re.search(pattern, text))
    return next((f"; {remedy}" for remedy in remedies), "")


def no_put_if_absent(place: str, why: str) -> UnsupportedError:
    """The error for a store that can't create an object only if its name is free."""
    return UnsupportedError(
        f"{place}: this store can't put if absent ({why}), on which every commit rests: two "
        f"writers would lose each other's rows. Give the storage option {COMMIT_LOG!r}, such as "
        '"/var/lib/commits.sqlite", which decides in its place (see "Object stores" in the '
        "manual, docs/stores.md)"
    )


def no_hard_links(place: str) -> UnsupportedError:
    """The error for a folder in which no file can be given its name only if that is free."""
    return UnsupportedError(
        f"{place}: this file system has no hard links, on which commits of Lance and of MemWAL "
        "rest: keep the table on one that has them, such as ext4, xfs or btrfs, or in an object "
        "store"
    )
