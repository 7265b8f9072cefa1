"""Building the maintained indexes of the base table over a generation (specification 2, "MemTable
Indexing"): the same name, kind, model and analyzer, in the generation's own `_indices/`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memwal_sql.storage.base_indexes import IndexRecipe


def build_indexes(dataset: Any, recipes: Iterable[IndexRecipe]) -> None:
    """Build every index whose column `dataset` has.

    A column that the rows do not have was added to the base after the writer was opened: whoever
    searches it finds no index, and so reads the rows. Rows without a vector or a text, however
    many, are no error.
    """
    names = set(dataset.schema.names)
    for recipe in recipes:
        info = recipe.info
        if info.column not in names:
            continue
        if info.is_text:
            dataset.create_scalar_index(info.column, info.kind, name=info.name, **recipe.arguments)
        else:
            dataset.create_index(info.column, info.kind, name=info.name, **recipe.arguments)
