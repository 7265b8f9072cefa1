"""What GlobalBM25Exec hands to the FTSExecs below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.text.postings.corpus import LiveText
from exec_nodes.text.scoring.resolve import Resolved


@dataclass(frozen=True, slots=True)
class BM25Parameters:
    """A query over a corpus.

    Attributes:
        query: with the weights and norms of the corpus.
        texts: by the source's ordinal and the column: its live texts, which the corpus is made of.
    """

    query: Resolved
    texts: Sequence[Mapping[str, LiveText]]


class Handover:
    """Carries the parameters of one plan; what is handed over a second time is the same again, as
    the sources of a plan never change."""

    def __init__(self) -> None:
        self._parameters: BM25Parameters | None = None

    def give(self, parameters: BM25Parameters) -> None:
        """By the node above, before it reads."""
        self._parameters = parameters

    def take(self) -> BM25Parameters:
        """By the nodes below."""
        if self._parameters is None:
            raise InvalidCallError(
                "an FTSExec runs below a GlobalBM25Exec, which tells it the corpus"
            )
        return self._parameters
