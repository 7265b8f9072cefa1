"""A small deterministic embedding: the weights of a text's words, in a space of 64 dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

DIMENSIONS = 64
VECTOR = pa.list_(pa.float32(), DIMENSIONS)


class Embedding:
    """Learned once from some texts; the same texts give the same vectors."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._model = make_pipeline(
            TfidfVectorizer(sublinear_tf=True, stop_words="english", max_features=20_000),
            TruncatedSVD(DIMENSIONS, n_iter=2, random_state=0),
            Normalizer(copy=False),
        )
        self._model.fit(texts)

    def of(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """(texts, 64) float32, each of length 1; zero for a text of unknown words."""
        vectors: npt.NDArray[np.float32] = self._model.transform(texts).astype(np.float32)
        return vectors

    def column(self, texts: Sequence[str]) -> pa.FixedSizeListArray:
        """The same as an Arrow column."""
        return pa.FixedSizeListArray.from_arrays(pa.array(self.of(texts).ravel()), DIMENSIONS)
