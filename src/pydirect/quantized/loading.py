"""Reading quantised models from files; what is damaged or does not fit together is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pydirect.persistence.container import CorruptFileError, read
from pydirect.persistence.schema import require_all_used, unpack
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedPredictor, QuantizedRegressor

CLASSES = (QuantizedRegressor, QuantizedClassifier)


def load_quantized(path: str | Path) -> QuantizedPredictor:
    """Read a quantised model written by its ``save``; its predictions are the same bit for bit.

    Parameters
    ----------
    path : str or Path
        Path of the file.

    Returns
    -------
    QuantizedRegressor or QuantizedClassifier
        The model.

    Raises
    ------
    pydirect.persistence.container.FileFormatError
        With the reason, when the file is truncated, altered, of a later version or not a quantised model.
    """
    document = read(path, tuple(f"pydirect.{cls.__name__}" for cls in CLASSES))
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):  # no fitted model's numbers overflow
            require_all_used(document.header, document.arrays)
            model: QuantizedPredictor = unpack(CLASSES, document.header["model"], document.arrays)
            return model
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        reason = f"the file is whole but its contents do not make a model ({type(error).__name__}: {error})"
        raise CorruptFileError(path, reason) from error
