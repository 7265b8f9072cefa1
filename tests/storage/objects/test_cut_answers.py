"""Answers that end too early, or not in time: the client has them asked for again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from memwal_sql.errors import StoreUnavailableError
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.protocol import ObjectStore
from tests.model.s3 import Application, s3_server

BUCKET = "cut"


class Cutter:
    """Ends so many of the next answers that have a body in their middle."""

    def __init__(self) -> None:
        self.left = 0

    def around(self, inner: Application) -> Application:
        """For `s3_server`."""

        def application(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            content = b"".join(inner(environment, start))
            if not self.left or environment["REQUEST_METHOD"] == "HEAD" or not content:
                return [content]
            self.left -= 1
            return [content[: len(content) // 2]]

        return application


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Cutter, dict[str, str]]]:
    cutter = Cutter()
    with s3_server(BUCKET, around=cutter.around) as options:
        yield cutter, options


@pytest.fixture
def store(served: tuple[Cutter, dict[str, str]], no_pauses: None) -> ObjectStore:
    cutter, options = served
    cutter.left = 0
    place = f"s3://{BUCKET}/{uuid4().hex}"
    store = open_store(place, {**options, "client_max_retries": "1"})
    for name in ("a", "b"):
        store.put(f"folder/{name}", b"content of " + name.encode())
    return store


CALLS: dict[str, tuple[Callable[[ObjectStore], object], object]] = {
    "get": (lambda store: store.get("folder/a"), b"content of a"),
    "get_tail": (lambda store: store.get_tail("folder/a", 4).data, b"of a"),
    "get_range": (lambda store: store.get_range("folder/a", 0, 7), b"content"),
    "list": (
        lambda store: sorted(meta.path for meta in store.list("folder")),
        ["folder/a", "folder/b"],
    ),
    "list_folders": (lambda store: store.list_folders("folder"), []),
    "delete": (lambda store: store.delete(["folder/a", "folder/b"]), None),
    "delete_in_bulk": (lambda store: store.delete_in_bulk(["folder/a", "folder/b"]), None),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_that_is_cut_off_is_asked_for_again(
    served: tuple[Cutter, dict[str, str]], store: ObjectStore, name: str
) -> None:
    cutter, _ = served
    call, expected = CALLS[name]
    cutter.left = 1
    assert call(store) == expected
    assert cutter.left == 0
    left = [] if name.startswith("delete") else ["folder/a", "folder/b"]
    assert sorted(meta.path for meta in store.list("folder")) == left


@pytest.mark.parametrize("name", ["get_range", "list", "delete_in_bulk"])
def test_answers_that_are_always_cut_off_are_an_error_that_says_to_try_again(
    served: tuple[Cutter, dict[str, str]], store: ObjectStore, name: str
) -> None:
    cutter, _ = served
    call, _ = CALLS[name]
    cutter.left = 1000
    with pytest.raises(StoreUnavailableError, match="try again"):
        call(store)
