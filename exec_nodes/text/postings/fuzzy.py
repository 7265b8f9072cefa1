"""The words of fuzzy queries. `native/src/text/edit_distance` finds the tokens near them."""

from __future__ import annotations

from lance.lance import tokenize


def automatic_distance(token: str) -> int:
    """The distance that fits a token's length: 0 up to two characters, 1 up to five, else 2."""
    return 0 if len(token) <= 2 else 1 if len(token) <= 5 else 2


def plain_tokens(text: str) -> list[str]:
    """The tokens of a fuzzy query: what lies between spaces and punctuation, as it was written.

    As in Lance: no analyzer has a say in it, so that stop words count and case is a difference.
    """
    tokens = tokenize(
        text,
        base_tokenizer="simple",
        max_token_length=None,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
    )
    return [token.text for token in tokens]
