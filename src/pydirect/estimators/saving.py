"""Reading fitted estimators from files, which hold arrays and a header, and nothing that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydirect.estimators._estimator import Estimator
from pydirect.estimators.correlated import CorrelatedRegressor
from pydirect.estimators.direct_classifier import DirectClassifier
from pydirect.estimators.direct_count import DirectCountRegressor
from pydirect.estimators.direct_latent import DirectCensoredRegressor, DirectOrdinalClassifier, DirectSurvivalRegressor
from pydirect.estimators.direct_mixed import DirectMixedRegressor
from pydirect.estimators.direct_regressor import DirectRegressor
from pydirect.estimators.direct_stream import DirectStreamRegressor
from pydirect.estimators.networks import DVIClassifier, DVIRegressor, MonteCarloBNNClassifier, MonteCarloBNNRegressor
from pydirect.estimators.pooled import PooledClassifier, PooledRegressor
from pydirect.estimators.quadratic_bnn import QuadraticBNNRegressor
from pydirect.persistence.container import KindError, read, sound_contents

ESTIMATORS: tuple[type[Estimator], ...] = (
    DirectRegressor,
    DirectClassifier,
    DirectCountRegressor,
    DirectCensoredRegressor,
    DirectSurvivalRegressor,
    DirectOrdinalClassifier,
    DirectMixedRegressor,
    DirectStreamRegressor,
    CorrelatedRegressor,
    PooledClassifier,
    PooledRegressor,
    DVIRegressor,
    DVIClassifier,
    MonteCarloBNNRegressor,
    MonteCarloBNNClassifier,
    QuadraticBNNRegressor,
)
KINDS = {f"pydirect.{c.__name__}": c for c in ESTIMATORS}


def load(path: str | Path) -> Any:
    """Read a model written by an estimator's ``save``; it predicts bit for bit the same.

    Parameters
    ----------
    path : str or Path
        Path of the file.

    Returns
    -------
    estimator
        Of the class that was saved.

    Raises
    ------
    pydirect.persistence.container.FileFormatError
        With the reason, when the file is truncated, altered, of a later version or not a model.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor, load
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = DirectRegressor("linear").fit(X, 2 * X[:, 0])
    >>> model.save("line.pydirect")
    >>> bool((load("line.pydirect").predict(X) == model.predict(X)).all())
    True
    """
    document = read(path)
    if document.kind not in KINDS:
        reader = ", which pydirect.quantized.load_quantized reads" if "Quantized" in document.kind else ""
        raise KindError(path, f"expected a file of a model, got {document.kind!r}{reader}")
    with sound_contents(path, "a model"):
        return KINDS[document.kind]._from_file(document.header, document.arrays)
