"""The base index builder: extends indexes to merged rows (specification 2).

An index is caught up when its segments cover all fragments (protocol rule 17). `index_catchup` says
the same for readers that go by it; Lance moves it on with its own index commits and forgets it
with every compaction, so it is written again where it has fallen behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from exec_nodes.lance.errors import BASE_NAME, lance_panics
from exec_nodes.lance.indexes import indexes_of
from memwal_sql.errors import ConflictError, InvalidCallError, OutcomeUnknownError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.details import Rewrite, change_details, latest_dataset
from memwal_sql.maintain.progress import Progress, Report
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.commits import is_conflict, lost_files
from memwal_sql.storage.base.memwal_index import IndexDetails
from memwal_sql.storage.base.merge_token import regions_in
from memwal_sql.storage.deadlines import check_deadline
from memwal_sql.storage.retries import over_conflicts

_log = life_log(__name__)

JOB = "build_indexes"
# Every search asks each segment of a vector index, so there should be few.
MOST_SEGMENTS = 8
_SYSTEM = "__lance"


def build_indexes(
    context: TableContext, report: Report, names: Sequence[str] | None = None
) -> list[str]:
    """Extend indexes of the base table to all rows; returns the names of those that were behind.

    `names` are the indexes to build, all by default. Vector indexes keep their centroids and their
    codebook: new rows get a segment of their own, and many segments become one without training.
    Raises RetryError when other commits keep coming in between.
    """
    dataset = latest_dataset(context)
    all_names = [index.name for index in column_indexes(dataset)]
    unknown = sorted(set(names or ()) - set(all_names))
    if unknown:
        raise InvalidCallError(
            f"there are no indexes {unknown} on {context.uri}; it has {all_names}"
        )
    chosen = [name for name in all_names if names is None or name in names]
    built = []
    for done, name in enumerate(chosen, start=1):
        behind, dataset = _build(context, name, dataset)
        if behind:
            built.append(name)
            _log.info("indexed %s: index %r is up to date", context.uri, name)
        report(Progress(JOB, None, done, len(chosen), "indexes"))
    change_details(context, JOB, _with_catch_up, dataset)
    return built


def covers_everything(dataset: Any, index: Any) -> bool:
    """Whether an index, as Lance describes it, covers all fragments of the dataset."""
    covered = {fragment_id for segment in index.segments for fragment_id in segment.fragment_ids}
    return all(fragment.fragment_id in covered for fragment in dataset.get_fragments())


def column_indexes(dataset: Any) -> list[Any]:
    """The indexes of columns, as Lance describes them."""
    return [index for index in indexes_of(dataset) if not index.name.startswith(_SYSTEM)]


def _build(context: TableContext, name: str, latest: Any) -> tuple[bool, Any]:
    """Whether the index was behind, and the version that has it; `latest` has just been the
    newest."""
    behind, dataset = False, latest

    def build() -> None:
        nonlocal behind, dataset
        dataset = dataset or latest_dataset(context)
        index = next((index for index in column_indexes(dataset) if index.name == name), None)
        if index is None or covers_everything(dataset, index):
            return
        behind = True
        check_deadline(f"index {name!r} of {context.uri}")
        try:
            with lance_panics(BASE_NAME, context.uri):
                # It moves the dataset on.
                dataset.optimize.optimize_indices(index_names=[name], **_settings(index))
        except (OSError, RuntimeError) as error:
            # Merges and compactions may come in between, and other builders.
            if not is_conflict(error):
                if (lost := lost_files(error, context.uri, f"index {name!r}")) is not None:
                    raise lost from error
                raise OutcomeUnknownError(
                    f"index {name!r} of {context.uri} may not be up to date yet; build it again: "
                    f"{error}"
                ) from error
            dataset = None
            raise ConflictError(str(error)) from error

    over_conflicts(build, f"index {name!r} of {context.uri}")
    return behind, dataset


def _settings(index: Any) -> dict[str, int]:
    """By default Lance may divide and join partitions of a vector index, which moves centroids."""
    if not (index.details and index.details.get("metric_type")):
        return {}
    segments = len(index.segments)
    return {"num_indices_to_merge": segments if segments >= MOST_SEGMENTS else 0}


def _with_catch_up(rewrite: Rewrite) -> IndexDetails | None:
    """The details with the progress of the indexes that cover everything, if it is not there."""
    details = rewrite.details
    merged = regions_in(details.merged_generations)
    written = dict(details.index_catchup)
    for index in column_indexes(rewrite.dataset):
        progress = written.get(index.name, {})
        behind = any(progress.get(region, 0) < merged[region] for region in merged)
        if behind and covers_everything(rewrite.dataset, index):
            written[index.name] = merged
    if written == dict(details.index_catchup):
        return None
    return replace(details, index_catchup=written)
