"""Building the maintained indexes of the base table over a generation (specification 2, "MemTable
Indexing"): the same name, kind, model and analyzer, in the generation's own `_indices/`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from exec_nodes.base.secrets import redacted
from memwal_sql.storage.base.indexes import IndexRecipe

_log = logging.getLogger(__name__)


def build_indexes(dataset: Any, recipes: Iterable[IndexRecipe], name: str) -> None:
    """Build every index whose column `dataset` has; the log calls it `name`.

    A column that the rows do not have was added to the base after the writer was opened. What Lance
    refuses to index, as a column whose type was changed since, is logged and left out too: the rows
    come first, and whoever searches a generation without an index reads them. Rows without a vector
    or a text, however many, are no error; a store that fails is.
    """
    names = set(dataset.schema.names)
    for recipe in recipes:
        info = recipe.info
        if info.column not in names:
            continue
        build = dataset.create_scalar_index if info.is_text else dataset.create_index
        try:
            build(info.column, info.kind, name=info.name, **recipe.arguments)
        except (ValueError, TypeError, RuntimeError) as error:
            why = redacted(str(error))
            _log.warning("%s goes without the index %s: %s", name, info.name, why)
