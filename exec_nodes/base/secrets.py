"""Blanks secrets of storage options out of texts that repeat them.

Stores echo what they receive, and clients quote answers and addresses in their errors. So the
secrets that this process was given are blanked out of the texts of errors, by value.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from threading import Lock
from urllib.parse import quote, unquote

# Shorter secrets may be ordinary words of a text.
_SHORTEST = 8
# The least length in answers of the store that was sent the secret.
_SHORTEST_SENT = 4
# Credentials that are given for some hours are replaced for as long as a process lives.
_KEPT = 1024
_BLANK = "***"
# The parts of a value that clients take out and quote by themselves.
_SIGNATURE = re.compile(r"(?:^|[?&])sig=([^&]+)")
_PASSWORD = re.compile(r"://([^/@]*)@")

_secrets: dict[str, None] = {}
_lock = Lock()


def keep_secret(values: Iterable[str]) -> None:
    """Blank these values out of errors from now on; values of fewer than eight characters stay."""
    forms = _forms(values, _SHORTEST)
    with _lock:
        for form in forms:
            _secrets.pop(form, None)
            _secrets[form] = None
        while len(_secrets) > _KEPT:
            del _secrets[next(iter(_secrets))]


def redacted(text: str, sent: Iterable[str] = ()) -> str:
    """`text` without the secrets of this process.

    `sent` are secrets that the author of `text` received: blanked from four characters on.
    """
    with _lock:
        exposed = [
            secret for secret in {*_secrets, *_forms(sent, _SHORTEST_SENT)} if secret in text
        ]
    for secret in sorted(exposed, key=len, reverse=True):
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
        if any(isinstance(arg, str) and redacted(arg) != arg for arg in error.args):
            error.args = tuple(redacted(arg) if isinstance(arg, str) else arg for arg in error.args)
        error = error.__cause__ or error.__context__


def _forms(values: Iterable[str], shortest: int) -> set[str]:
    """Values and their parts as clients quote them, of at least this many characters."""
    parts: list[str] = []
    for value in values:
        parts += [value, *_SIGNATURE.findall(value)]
        for userinfo in _PASSWORD.findall(value):
            parts += [userinfo, *userinfo.split(":", 1)]
    forms = {form for part in parts for form in (part, quote(part, safe=""), unquote(part))}
    return {form for form in forms if len(form) >= shortest}
