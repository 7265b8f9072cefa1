from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.vectors.blocklist import blocklist
from planner.model import TableInfo


def test_lance_masks_exactly_these_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    for stable in (False, True):
        rows = pa.table({"id": pa.array(range(3000), pa.int64())})
        folder = tmp_path / f"{stable}"
        dataset = lance.write_dataset(
            rows, folder, max_rows_per_file=1000, enable_stable_row_ids=stable
        )
        dataset.delete("id < 10")
        dataset.optimize.compact_files(target_rows_per_fragment=1500)
        dataset = lance.dataset(folder)
        info = TableInfo(rows.schema, ("id",))
        source = LanceSource.base(dataset, info, etag="", resident=ResidentStore())
        held = source.matching(())
        for count in (0, 1, 700, len(held)):
            masked = random.permutation(held)[:count]
            left = dataset.scanner(
                columns=[],
                with_row_address=True,
                row_addr_blocklist=blocklist(source.row_ids(masked)),
            ).to_table()["_rowaddr"]
            assert sorted(left.to_pylist()) == np.setdiff1d(held, masked).tolist()
