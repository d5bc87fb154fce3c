"""`quantize`: from a fitted estimator to a quantised model."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pydirect._validation import as_choice, as_count, as_generator
from pydirect.quantized.assemble import Encoding
from pydirect.quantized.fitted import FittedNetwork, Quantizable
from pydirect.quantized.integer.compile import FREQUENCY_BITS
from pydirect.quantized.levels import unit_levels
from pydirect.quantized.linear import quantize_basis_model
from pydirect.quantized.losses import warn_of_losses
from pydirect.quantized.model import ARITHMETICS
from pydirect.quantized.network import quantize_network
from pydirect.quantized.packing import LAYOUTS
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.quantized.samples import METHODS

LEVELS = ("model", "even", "power_of_two")
MOST_SAMPLES = 256


def quantize(
    model: Quantizable,
    n_samples: int = 16,
    method: str = "moments",
    *,
    X: ArrayLike | None = None,
    levels: str = "model",
    n_levels: int | None = None,
    arithmetic: str = "float",
    feature_bits: int = 16,
    frequency_bits: int | str = "auto",
    layout: str = "auto",
    random_state: np.random.Generator | int | None = 0,
) -> QuantizedPredictor:
    """Quantise a fitted estimator to a few posterior samples with packed level indices.

    Basis functions whose weights are zero in every sample are dropped.

    Parameters
    ----------
    model : DirectRegressor, DirectClassifier or QuadraticBNNRegressor
        Fitted; anything with a method ``quantizable``, see `pydirect.quantized.fitted`. ``arithmetic="float"`` allows
        any basis and features; integers require Fourier features or the columns themselves (``"linear"``,
        ``"precomputed"``), no normal scores (``rank_inputs=False``) and levels that all weights share but for a power
        of two: those of ``basis="raw"``, or ``levels="even"`` here. `pydirect.fit_quantized` fits such a model to a
        number of bytes. Networks need no such option and use integers of 16 bits.
    n_samples : int, default=16
        At most 256.
    method : {"moments", "draw", "most_probable"}, default="moments"
        ``"draw"``: independent draws, whose mean is off by a posterior standard deviation over √n_samples.
        ``"most_probable"``: every weight's most probable level, one sample without spread. ``"moments"``: chosen so
        that mean and variance over the samples are those of the posterior. A sequential posterior keeps stratified
        draws, any first few of which have nearly its mean: they are the samples of ``"moments"`` and of ``"draw"``, at
        most as many as were kept. A single sample of ``"moments"`` and the ``"most_probable"`` one is the vector that
        takes the most probable level each time.
    X : array_like of shape (n_rows, n_features_in), optional
        Typical rows, such as the training rows: ``"moments"`` also matches the variance of predictions there, for
        networks their mean, too. Required for ``levels`` other than ``"model"``, and for integers of precomputed
        columns, whose ranges it shows, and of networks: hidden units are clipped at no less than twice their magnitude
        there.
    levels : {"model", "even", "power_of_two"}, default="model"
        ``"model"``: those the model was fitted with. Otherwise samples of the posterior, decorrelated or not, are
        rounded to `n_levels` levels shared by all weights of Φ, the errors of the weights compensating each other at
        the rows of `X`, and those of the samples in their mean: ``"even"``, or ``"power_of_two"``, 0 and ± powers of
        two.
    n_levels : int, optional
        For ``levels`` other than ``"model"``: odd, 3 to 255, by default 15.
    arithmetic : {"float", "integer"}, default="float"
        Arithmetic of predictions. Standard deviations in integers omit the variance that floating point adds where
        inputs are beyond the reach of the linear part; see `QuantizedModel.with_arithmetic`.
    feature_bits : {16, 8}, default=16
        Bits of a basis function in integer arithmetic; 16 for a network.
    frequency_bits : {"auto", 8, 16, 32}, default="auto"
        Bits of a frequency in integer arithmetic.
    layout : {"auto", "dense", "sparse"}, default="auto"
        Layout of the packed indices; ``"auto"`` is the smaller one.
    random_state : numpy.random.Generator, int or None, default=0
        Seed of the samples.

    Returns
    -------
    QuantizedRegressor or QuantizedClassifier
        The quantised model.

    Raises
    ------
    ValueError
        When an argument is invalid, or the model has no integer-only form (`IntegerArithmeticError`).
    TypeError
        When the model is not one of these estimators.

    Warns
    -----
    IntegerArithmeticWarning
        When integers clip inputs or hidden units at rows of `X`, or move means there by more than their standard
        deviation. Inputs pass through single precision: subtract an origin from columns that are large compared with
        their spread, such as UNIX time. Nothing is checked without `X`, or by `with_arithmetic` afterwards.

    Examples
    --------
    >>> import numpy as np
    >>> from pydirect import DirectRegressor, quantize
    >>> X = np.linspace(-3, 3, 100)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(100)
    >>> model = DirectRegressor("fourier", n_basis_functions=20, basis="raw").fit(X, y)
    >>> small = quantize(model, n_samples=8)
    >>> mean, std = small.predict(X, return_std=True)
    >>> small.n_samples, mean.shape, bool(np.abs(mean - np.sin(X[:, 0])).max() < 0.3)
    (8, (100,), True)
    """
    if not hasattr(model, "quantizable"):
        raise TypeError(f"model must be a fitted estimator of pydirect, got {type(model).__name__}")
    fitted = model.quantizable()
    n_samples = as_count(n_samples, "n_samples")
    if n_samples > MOST_SAMPLES:
        raise ValueError(f"n_samples must be at most {MOST_SAMPLES}, got {n_samples}")
    as_choice(method, "method", METHODS)
    as_choice(levels, "levels", LEVELS)
    if n_levels is not None and levels == "model":
        raise ValueError("n_levels must come with levels='even' or 'power_of_two': a model has its own")
    as_choice(arithmetic, "arithmetic", ARITHMETICS)
    as_choice(layout, "layout", ("auto", *LAYOUTS))
    if feature_bits not in (8, 16):
        raise ValueError(f"feature_bits must be 8 or 16, got {feature_bits!r}")
    if frequency_bits != "auto" and frequency_bits not in FREQUENCY_BITS:
        raise ValueError(f"frequency_bits must be 'auto', 8, 16 or 32, got {frequency_bits!r}")
    grid = None
    if levels != "model":
        if isinstance(fitted, FittedNetwork):
            raise ValueError("levels must be 'model' for a network")
        grid = unit_levels(levels, 15 if n_levels is None else n_levels)
        if X is None:
            raise ValueError(f"X must be given for levels={levels!r}: rows at which predictions are to agree")
    rows = None if X is None else fitted.outputs.rows(X)
    rng, encoding = as_generator(random_state), Encoding(layout, feature_bits, frequency_bits, arithmetic)
    if isinstance(fitted, FittedNetwork):
        quantised = quantize_network(fitted, n_samples, method, rows, encoding, rng)
    else:
        quantised = quantize_basis_model(fitted, n_samples, method, rows, grid, encoding, rng)
    if arithmetic == "integer":
        quantised.program.prove()
        if rows is not None:
            warn_of_losses(quantised, rows)
    return quantised
