"""What must not be said: secrets of storage options, wherever somebody else's text repeats them.

Stores answer with what they were sent, and clients quote answers and addresses in their errors. So
the secrets that this process was given are blanked out of the texts of errors, by value.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from threading import Lock
from urllib.parse import quote, unquote

# Shorter ones are words that stand in texts by chance.
_SHORTEST = 8
# Credentials that are given for some hours are replaced for as long as a process lives.
_KEPT = 1024
_BLANK = "***"
# The parts of a value that clients take out and quote by themselves.
_SIGNATURE = re.compile(r"(?:^|[?&])sig=([^&]+)")
_PASSWORD = re.compile(r"://([^/@]*)@")

_secrets: dict[str, None] = {}
_lock = Lock()


def keep_secret(values: Iterable[str]) -> None:
    """Blank these values out of errors from now on; those of fewer than eight characters stay."""
    forms = {form for value in values for form in _forms(value) if len(form) >= _SHORTEST}
    with _lock:
        for form in forms:
            _secrets.pop(form, None)
            _secrets[form] = None
        while len(_secrets) > _KEPT:
            del _secrets[next(iter(_secrets))]


def redacted(text: str) -> str:
    """`text` without the secrets of this process."""
    if not _secrets:
        return text
    with _lock:
        found = [secret for secret in _secrets if secret in text]
    for secret in sorted(found, key=len, reverse=True):
        text = text.replace(secret, _BLANK)
    return text


def redact_handled() -> None:
    """Take the secrets out of the exception that is being handled, and of those behind it: who
    raises another one shows it as the cause, and with `from None` still holds it as the context."""
    if not _secrets:
        return
    seen: set[int] = set()
    error = sys.exception()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if any(isinstance(one, str) and redacted(one) != one for one in error.args):
            error.args = tuple(redacted(one) if isinstance(one, str) else one for one in error.args)
        error = error.__cause__ or error.__context__


def _forms(value: str) -> Iterable[str]:
    parts = [value, *_SIGNATURE.findall(value)]
    for userinfo in _PASSWORD.findall(value):
        parts += [userinfo, *userinfo.split(":", 1)]
    for part in parts:
        yield from (part, quote(part, safe=""), unquote(part))
