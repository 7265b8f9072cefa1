"""What is read of Lance's files, although it might be in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import Mock, patch

from exec_nodes.resident import columns
from exec_nodes.sources import lance_source


@contextmanager
def reads() -> Iterator[Mock]:
    """The calls that read columns of fragments, or that fetch rows, as `reads.fetch`."""
    calls = Mock()
    whole, take = columns.whole_fragments, lance_source.take_rows
    calls.side_effect, calls.fetch.side_effect = whole, take
    with (
        patch.object(columns, "whole_fragments", calls),
        patch.object(lance_source, "take_rows", calls.fetch),
    ):
        yield calls


@contextmanager
def no_reads() -> Iterator[None]:
    """Columns and rows come from memory."""
    with reads() as calls:
        yield
    assert not calls.called and not calls.fetch.called


def fragments_read(calls: Mock) -> list[list[int]]:
    """The ids of the fragments whose columns were read, call by call."""
    return [[one.fragment_id for one in call.args[2]] for call in calls.call_args_list]
