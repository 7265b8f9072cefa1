"""Errors cross processes: executors and queues pickle them."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Iterator
from itertools import product
from typing import Any
from uuid import UUID

import pytest

import memwal_sql as mw
from memwal_sql import errors
from memwal_sql.statements.queries.places import StatementError
from memwal_sql.storage.region.manifest import RegionManifest

REGION = UUID(int=7)
ATTRIBUTES: dict[str, Any] = {
    "keys": frozenset({1, ("a", b"b")}),
    "regions": (REGION, UUID(int=8)),
    "latest": RegionManifest(region_id=REGION, region_spec_id=1, region_values={"a": 1}),
    "at": 3,
}


def tree(kind: type[mw.MemWalError] = mw.MemWalError) -> Iterator[type[mw.MemWalError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from tree(one)


def made(kind: type[mw.MemWalError], text: str) -> mw.MemWalError:
    wanted = inspect.signature(kind.__init__).parameters
    return kind(text, **{name: value for name, value in ATTRIBUTES.items() if name in wanted})


def through_pickle(error: mw.MemWalError) -> mw.MemWalError:
    found: mw.MemWalError = pickle.loads(pickle.dumps(error))
    return found


@pytest.mark.parametrize("text", ["", "region 7: \n{}%s \N{SNOWMAN}"])
def test_every_error_survives_with_its_attributes(text: str) -> None:
    kinds = set(tree())
    assert {mw.ManifestConflictError, StatementError, mw.KeysExistError} <= kinds
    for kind, again in product(kinds, (through_pickle, copy.copy, copy.deepcopy)):
        error = made(kind, text)
        error.add_note(text)
        found = again(error)
        assert (type(found), found.args, str(found)) == (kind, error.args, str(error))
        assert found.__dict__ == error.__dict__


def test_the_module_shows_the_tree() -> None:
    shown: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").split("\n"):
        if line.startswith("    ") and "Error" in line:
            depth, name = (len(line) - len(line.lstrip())) // 4 - 1, line.split()[0]
            above[depth:] = [name]
            shown[name] = above[depth - 1] if depth else ""
    public = {name for name in (*mw.__all__, *errors.__all__) if name.endswith("Error")}
    assert shown.keys() == public
    kinds = {kind.__name__: kind for kind in tree()}
    assert shown.pop("MemWalError") == ""
    assert {name: kinds[name].__base__ for name in shown} == {
        name: kinds[above] for name, above in shown.items()
    }
