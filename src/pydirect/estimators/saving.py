"""Reading fitted estimators from files, which hold arrays and a header, and nothing that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydirect import estimators
from pydirect.estimators._estimator import Estimator
from pydirect.persistence.container import KindError, read, sound_contents

_CLASSES = [value for value in vars(estimators).values() if isinstance(value, type)]
KINDS = {f"pydirect.{c.__name__}": c for c in _CLASSES if issubclass(c, Estimator)}


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
