"""Lance's names of versions: tags and branches, a JSON file each."""

from __future__ import annotations

import json
from typing import Any

from exec_nodes.lance.errors import BASE_NAME, lance_errors
from memwal_sql.errors import CorruptFileError, NotFoundError
from memwal_sql.storage.decoding import LARGEST
from memwal_sql.storage.objects.protocol import ObjectStore

_TAGS, _BRANCHES = "_refs/tags", "_refs/branches"


def tags_of(store: ObjectStore, dataset: Any) -> dict[str, Any]:
    """The tags of the base table by name. Raises CorruptFileError, naming the file, for one that
    can't be read, and StoreUnavailableError."""
    return _listed(store, _TAGS, dataset, dataset.tags)


def branches_of(store: ObjectStore, dataset: Any) -> dict[str, Any]:
    """The same for branches."""
    return _listed(store, _BRANCHES, dataset, dataset.branches)


def _listed(store: ObjectStore, folder: str, dataset: Any, refs: Any) -> dict[str, Any]:
    try:
        with lance_errors(BASE_NAME, dataset.uri):
            refs_listed: dict[str, Any] = refs.list()
    except (RuntimeError, CorruptFileError) as error:
        raise _damaged(_first_damaged(store, folder) or folder, error) from error
    for name, ref in refs_listed.items():
        if max(ref.get("version", 0), ref.get("parent_version", 0)) > LARGEST:
            raise _damaged(f"{folder}/{name}.json", "no version has its number")
    return refs_listed


def _first_damaged(store: ObjectStore, folder: str) -> str | None:
    """The first file that Lance can't have read; None where all look whole."""
    for path in sorted(meta.path for meta in store.list(folder)):
        try:
            content = json.loads(store.get(path))
        except NotFoundError:  # deleted meanwhile
            continue
        except (ValueError, RecursionError):
            return path
        if not isinstance(content, dict) or not {"version", "parentVersion"} & content.keys():
            return path
    return None


def _damaged(path: str, why: object) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is damaged: restore it from a copy, or delete it, which lets go of the version "
        f"that it names, and make the tag again: {why}"
    )
