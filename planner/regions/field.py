"""Region fields (specification 1, "Region Field")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from exec_nodes.base.errors import InvalidCallError
from planner.regions.expression import check_size


@dataclass(frozen=True)
class RegionField:
    """One derived region value.

    `field_id` names it. `source_columns` are the names of the columns it is derived from, in the
    order of `col0`, `col1`, ...; `None` stands for a column that the schema no longer has, which
    reads as NULL. Exactly one of `transform` (a well-known name) and `expression` (DataFusion SQL)
    is set. `result_type` is the type as native code writes it (`"int32"`, `"utf8"`), or `""`
    before the field was bound to a schema by `validate`. `parameters` belong to the transform.
    `native` fields follow the rules of Lance's native code instead of the specification's
    (protocol rule 12). `source_ids` are the stored field ids when the field came from storage.
    """

    field_id: str
    source_columns: tuple[str | None, ...]
    transform: str | None = None
    expression: str | None = None
    result_type: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    native: bool = False
    source_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.field_id:
            raise InvalidCallError("a region field needs a name that is not empty")
        if (self.transform is None) == (self.expression is None):
            raise InvalidCallError(
                f"region field {self.field_id!r} needs either a transform or an expression, "
                f"got transform={self.transform!r} and expression={self.expression!r}"
            )
        if self.expression is not None:
            check_size(self.expression)
