"""Staging rows that replace a table's: as data files of the base table itself (protocol rule 24).

Regions play no part in a replacement, so a task writes few large files, and the driver only names
them in its commit. Lance's own cleanup removes the files of tasks that were killed and of jobs that
failed, as nothing ever refers to them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import write_fragments

from memwal_sql.bulk.rows import ORDER, RowForm
from memwal_sql.bulk.stage import StagedPiece, StageLimits, Stager
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.wal.entry import TOMBSTONE
from memwal_sql.write.generation_writer import GenerationWriter
from memwal_sql.write.router import RegionKey
from planner.regions.factories import unsharded
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue


class FragmentStager(Stager):
    """Stages the rows of one attempt of one task for a replacement of all rows."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        writer: GenerationWriter,
        form: RowForm,
        folder: str,
        limits: StageLimits | None = None,
    ) -> None:
        whole = RegionSpec(1, (unsharded(),))
        super().__init__(
            store=store, writer=writer, spec=whole, form=form, folder=folder, limits=limits
        )

    def _large(
        self, key: RegionKey, values: Mapping[str, RegionValue], rows: pa.Table
    ) -> StagedPiece:
        """Data files, unless some of the rows delete."""
        if pc.any(rows[TOMBSTONE]).as_py():
            return super()._large(key, values, rows)
        keys = self._put_keys(rows)
        base = self._writer.base
        kept = rows.drop_columns([name for name in (TOMBSTONE, ORDER) if name in rows.column_names])
        fragments = write_fragments(
            pa.Table.from_arrays(kept.columns, schema=base.schema),
            base,
            mode="append",
            data_storage_version=base.data_storage_version,
            storage_options=self._writer.context.storage_options,
        )
        described = tuple(json.dumps(fragment.to_json()) for fragment in fragments)
        size = int(rows.nbytes)
        return StagedPiece(key, values, rows.num_rows, size, order=keys, fragments=described)
