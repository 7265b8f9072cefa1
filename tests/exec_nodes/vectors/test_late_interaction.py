"""Late interaction over lists with nulls, in slices, over hidden values, within bounds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from exec_nodes.vectors.late_interaction import late_candidates
from exec_nodes.vectors.nearest import Bounds, NearestQuery
from tests.each import each
from tests.exec_nodes.arrow.hidden_values import over_hidden_values

NULL, ONE, TWO = None, [1.0, 0.0], [0.0, 2.0]
LISTS = [[ONE], [ONE, NULL], NULL, [NULL], [], [[NULL, 1.0], TWO], [ONE, TWO], [TWO], [TWO, ONE]]


@each(
    "bounds, expected",
    [
        (Bounds(), {6: 0, 8: 0, 1: 5, 5: 5, 7: 5}),
        (Bounds(lower=1.0), {1: 5, 5: 5, 7: 5}),
        (Bounds(upper=5.0), {6: 0, 8: 0}),
    ],
)
def test_the_least_distances_are_summed(bounds: Bounds, expected: dict[int, float]) -> None:
    rows = pa.table({"v": pa.array(LISTS[1:], pa.list_(pa.list_(pa.float32(), 2)))})
    lists = over_hidden_values(rows)["v"].chunk(0)
    query = NearestQuery("v", np.array([ONE, TWO], np.float32), 3, "l2", bounds, late=True)
    found = late_candidates(lists, np.arange(1, len(LISTS), dtype=np.uint64), query)
    assert dict(zip(found.addresses.tolist(), found.distances.tolist(), strict=True)) == expected
    assert found.addresses.tolist() == [*expected]
    assert not found.queries.any()
