"""The DataFrame that `mw.sql` returns, which raises errors of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import MethodType
from typing import Any

import datafusion
from datafusion.record_batch import RecordBatch, RecordBatchStream

from memwal_sql.statements.queries.places import errors_of_calls
from memwal_sql.statements.queries.planning import planning_errors


class _Stream(RecordBatchStream):
    def __next__(self) -> RecordBatch:
        with _errors():
            return super().__next__()

    async def __anext__(self) -> RecordBatch:
        with _errors():
            return await super().__anext__()


@contextmanager
def _errors() -> Iterator[None]:
    with errors_of_calls(), planning_errors():
        yield


def _with_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        with _errors():
            return _ours(method(*arguments, **named))

    return call


def _ours(result: Any) -> Any:
    if isinstance(result, datafusion.DataFrame):
        return TypedErrorFrame(result.df)
    if isinstance(result, list):
        return [
            _ours(stream) if isinstance(stream, RecordBatchStream) else stream for stream in result
        ]
    return _Stream(result.rbs) if isinstance(result, RecordBatchStream) else result


class TypedErrorFrame(datafusion.DataFrame):
    """A DataFusion DataFrame that raises MemWalError where DataFusion raises a bare exception. So
    do the frames and streams that its methods return, which DataFusion makes of its own classes."""

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        return _with_errors(attribute) if isinstance(attribute, MethodType) else attribute

    # Python finds these on the class alone.
    __getitem__ = _with_errors(datafusion.DataFrame.__getitem__)
    __repr__ = _with_errors(datafusion.DataFrame.__repr__)
    __iter__ = _with_errors(datafusion.DataFrame.__iter__)
    __aiter__ = _with_errors(datafusion.DataFrame.__aiter__)
