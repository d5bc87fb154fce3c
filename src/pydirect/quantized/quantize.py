"""`quantize`: from a fitted estimator to a quantised model, with warnings where integers lose something."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_generator
from pydirect._warnings import warn
from pydirect.quadratic.network import NetworkPosterior, NetworkShape
from pydirect.quantized.errors import IntegerArithmeticWarning
from pydirect.quantized.fitted import FittedNetwork, Quantizable
from pydirect.quantized.integer.compile import FREQUENCY_BITS
from pydirect.quantized.levels import affine_levels, shared_levels, unit_levels
from pydirect.quantized.linear import Encoding, Weights, assemble, quantize_basis_model
from pydirect.quantized.model import ARITHMETICS, FloatPath
from pydirect.quantized.packing import LAYOUTS
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.quantized.samples import METHODS, MOST_ROWS, choose_samples, shuffled_samples

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
        ``"precomputed"``), no normal scores (``Fourier(rank_inputs=False)``) and levels that all weights share but for
        a power of two: those of ``posterior="sequential"``, or ``levels="even"`` here. `pydirect.fit_quantized` fits
        such a model to a number of bytes. Networks need no such option and use integers of 16 bits.
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
        ``"model"``: those the model was fitted with. Otherwise samples of the posterior are rounded to
        `n_levels` levels shared by all weights of Φ, the errors of the weights compensating each other at
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
    >>> model = DirectRegressor("fourier", n_basis_functions=20, posterior="sequential").fit(X, y)
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


def quantize_network(
    model: FittedNetwork,
    n_samples: int,
    method: str,
    rows: FloatArray | None,
    encoding: Encoding,
    rng: np.random.Generator,
) -> QuantizedPredictor:
    """Quantise a network; see `quantize`.

    Rows determine which moments to match and the range that integers have to cover.
    """
    with single_blas_thread():
        posteriors, basis = model.posteriors, model.basis
        samples = [choose_samples(p, n_samples, method, rng) for p in posteriors]
        if rows is not None:
            inputs = basis.transform(rows)[0]
            if method == "moments" and n_samples > 1:
                chosen = np.ascontiguousarray(inputs[np.sort(rng.permutation(len(rows))[:MOST_ROWS])])
                pairs = zip(posteriors, samples, strict=True)
                samples = [
                    shuffled_samples(codes, partial(_functions, p, chosen), p.latent_moments(chosen), rng)
                    for p, codes in pairs
                ]
            pairs = zip(posteriors, samples, strict=True)
            reaches = [reach_of(basis.shape, p.weights.values(codes), inputs) for p, codes in pairs]
            basis = replace(basis, reach=np.max(reaches, axis=0))
        tables = [affine_levels(p.weights.levels) for p in posteriors]
        codes = np.ascontiguousarray(np.vstack(samples).T)
        centre, spread = (
            np.stack([np.broadcast_to(t[k], len(codes)) for t in tables], axis=1).astype(np.float64) for k in (1, 2)
        )
        weights = Weights(codes, shared_levels([t[0] for t in tables]), np.ones(len(posteriors)), centre, spread)
        return assemble(basis, weights, model.outputs, encoding)


def _functions(posterior: NetworkPosterior, inputs: FloatArray, codes: NDArray[np.uint8]) -> FloatArray:
    return posterior.shape.forward(posterior.weights.values(codes), inputs)


def reach_of(shape: NetworkShape, weights: FloatArray, inputs: FloatArray) -> FloatArray:
    """Return the largest magnitude of network inputs, and of the sums of every hidden layer, (n_layers,).

    `weights`, (n_networks, n_weights). `inputs`, (n_rows, n_inputs).
    """
    hidden = islice(shape.sums(weights, inputs), shape.depth)
    return np.array([np.abs(inputs).max(initial=0.0), *(np.abs(a).max(initial=0.0) for a in hidden)])


MOST_CHECKED_ROWS = 2048
# Integers may move a mean by its standard deviation plus this fraction of the spread of all means, and single precision
# an input by this fraction of its spread before it is named as the reason.
LARGEST_MOVE, LARGEST_INPUT_MOVE = 0.1, 1e-3


def warn_of_losses(model: QuantizedPredictor, rows: FloatArray) -> None:
    """Warn when a model in integers clips rows of X, or moves means by more than their standard deviation."""
    rows = np.ascontiguousarray(rows[:: -(-len(rows) // MOST_CHECKED_ROWS)])
    mean, std = FloatPath(model).moments(rows)
    moved = np.abs(model.path.mean(rows) - mean) > std + LARGEST_MOVE * mean.std(axis=0)
    lost = ~model.in_range(rows) | moved.any(axis=1)
    if lost.any():
        warn(
            f"integers clip or move predictions at {lost.sum()} of {len(rows)} rows of X{_reason(model, rows)}; see "
            "in_range, input_ranges and rounding_bound",
            IntegerArithmeticWarning,
            stacklevel=3,
        )


def _reason(model: QuantizedPredictor, rows: FloatArray) -> str:
    """Name the column that is worst, if columns are the reason."""
    columns = model.program.columns
    read, names = rows[:, columns], model.feature_names or range(model.n_features_in)
    ranges = model.input_ranges()[columns]
    with np.errstate(over="ignore"):
        rounding = np.abs(read.astype(np.float32) - read).max(axis=0) / np.maximum(read.std(axis=0), 1e-300)
    beyond = np.abs(read - ranges.mean(axis=1)) / np.ptp(ranges, axis=1)
    if rounding.max(initial=0.0) > LARGEST_INPUT_MOVE:
        worst = int(rounding.argmax())
        return (
            f": single precision, which inputs pass through, moves column {names[columns[worst]]!r} by up to "
            f"{rounding[worst]:.2g} of its standard deviation: subtract an origin from it before the fit, or let the "
            "device pass counts of its sensors (counts_per_unit= of to_c)"
        )
    if beyond.max(initial=0.0) >= 0.5:
        return f": column {names[columns[int(beyond.max(axis=0).argmax())]]!r} is beyond the range of integers"
    return ""
