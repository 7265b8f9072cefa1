"""The native library: mounts Python plans in DataFusion. Built from native/."""

import pyarrow as pa

DATAFUSION_MAJOR: int

class ArrowStream:
    """Rows that can be read any number of times."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class MountedTable:
    """What `SessionContext.register_table` takes, over a Python provider."""

    def __init__(self, provider: object) -> None: ...
    def __datafusion_table_provider__(self, session: object) -> object: ...

class Predicate:
    """One conjunct of a WHERE clause."""

    @property
    def sql(self) -> str | None:
        """As SQL text; None where SQL has no words for it."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns it reads, sorted."""

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """One boolean a row, null for unknown; columns are found by name."""

def recall(message: str) -> BaseException | None:
    """The newest exception whose text is part of `message`, of the last 32."""
