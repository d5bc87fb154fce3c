"""`quantize`: from a fitted estimator to posterior samples as packed level indices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag

from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray, RandomState, as_choice, as_count, as_generator
from pydirect._warnings import warn
from pydirect.direct.mixture_posterior import MixturePosterior
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.features.maps import FeatureMap, FourierFeatures, NystroemFeatures, TransformerFeatures
from pydirect.linear.posterior import GaussianPosterior
from pydirect.quantized.codes import PackedCodes, affine_levels, bits_for, shared_levels, unit_levels, zero_code
from pydirect.quantized.compile import input_reach, lay_out
from pydirect.quantized.fitted import FittedBasisModel, LinearBasis, Outputs, Quantizable
from pydirect.quantized.model import ARITHMETICS, FloatPath
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedPredictor, QuantizedRegressor
from pydirect.quantized.program import IntegerArithmeticError, IntegerArithmeticWarning
from pydirect.quantized.samples import choose_samples, rounded_on_best_scale, sample_targets

# Of weights that all have the same levels.
ZERO, ONE = np.zeros((1, 1)), np.ones((1, 1))


def assemble(
    basis: LinearBasis,
    codes: NDArray[np.uint8],
    levels: FloatArray,
    unit: FloatArray,
    outputs: Outputs,
    arithmetic: str,
    *,
    centre: FloatArray = ZERO,
    spread: FloatArray = ONE,
) -> QuantizedPredictor:
    """Assemble a quantised regressor, or a classifier when the outputs have classes.

    A weight is ``unit · (centre + spread · level)``, in units of the standardised target. Weights of columns of Φ are
    put into the order of an integer program, without those that are zero in every sample.

    `codes`, (n_basis_functions, n_outputs · n_samples). `levels`, (n_levels,). `unit`, (n_outputs,). `centre` and
    `spread`, (n_basis_functions, n_outputs or 1) or (1, 1).
    """
    if basis.vectors is None:
        order = _order(basis.features.map, (codes != zero_code(levels)).any(axis=1), spread[:, 0])
        codes, basis = codes[order], _without_unused(replace(basis, order=order))
        centre, spread = (a[order] if len(a) > 1 else a for a in (centre, spread))
    if not centre.any() and (spread == 1.0).all():
        centre, spread = ZERO, ONE
    factor = 1 / unit**2  # missing variance is relative to the outputs' scale
    basis = replace(basis, missing_scale=basis.missing_scale * factor, outside_scale=basis.outside_scale * factor)
    kind = QuantizedRegressor if outputs.classes is None else QuantizedClassifier
    return kind(
        basis=basis,
        packed=PackedCodes.pack(codes, bits_for(len(levels))),
        levels=levels,
        centre=centre,
        spread=spread,
        arithmetic=arithmetic,
        **(vars(outputs) | {"scale": outputs.scale * unit}),
    )


def _order(features: FeatureMap, used: NDArray[np.bool_], spread: FloatArray) -> NDArray[np.intp]:
    """Return the columns that are used, in the order of an integer program if there is one."""
    try:
        return lay_out(features, used, np.broadcast_to(spread, used.shape)).order
    except IntegerArithmeticError:
        return np.flatnonzero(used)


def with_frequencies(features: FourierFeatures, chosen: NDArray[np.intp]) -> FourierFeatures:
    """Return features with some of the frequencies."""
    frequencies = np.ascontiguousarray(features.frequencies[:, chosen])
    return replace(features, frequencies=frequencies, amplitudes=features.amplitudes[chosen])


def _without_unused(basis: LinearBasis) -> LinearBasis:
    """Drop frequencies that no weight uses, keeping one if none is used."""
    features = basis.features.map
    if not isinstance(features, FourierFeatures):
        return basis
    f = features.n_frequencies
    kept = np.unique(basis.order[basis.order < 2 * f] % f)
    if not kept.size:  # a feature map has at least one; no program stores it
        kept = np.zeros(1, dtype=np.intp)
    left = np.concatenate([kept, f + kept, np.arange(2 * f, features.n_weights)])
    smaller = replace(basis.features, map=with_frequencies(features, kept))
    return replace(basis, features=smaller, order=np.searchsorted(left, basis.order))


# Ridge of the metric where rows do not determine how weights act, relative to its mean diagonal.
METRIC_RIDGE = 1e-3
MOST_METRIC_ROWS = 2048


def _posterior_samples(
    model: FittedBasisModel, n_samples: int, arithmetic: str, rng: np.random.Generator
) -> QuantizedPredictor:
    """Choose samples of the posterior's own level indices."""
    if isinstance(model.basis.map, TransformerFeatures):
        raise ValueError("features must be built in to be quantised, got a transformer: use features='precomputed'")
    if any(isinstance(p, MixturePosterior) for p in model.posteriors):
        raise ValueError("posterior must not be a mixture to be quantised: fit with 'sequential' or 'mean_field'")
    if model.basis.kernel is not None and model.basis.hyperparameters is None:
        raise ValueError("features must be of the package's own kernel to be quantised, got a kernel of scikit-learn")
    posteriors: list[Any] = [
        FactorizedCategorical.of_gaussians(p.mean, p.std, model.n_levels) if isinstance(p, GaussianPosterior) else p
        for p in model.posteriors
    ]
    samples = [choose_samples(p, n_samples, rng).T for p in posteriors]
    tables, centres, spreads = zip(*(_affine_levels(p) for p in posteriors), strict=True)
    levels, basis, unit = shared_levels(list(tables)), _linear_basis(model), np.ones(len(posteriors))
    gaussian = [p for p in model.posteriors if isinstance(p, GaussianPosterior)]
    if gaussian:  # every output has directions of its own: blocks, without spread for the other outputs
        unused = max(zero_code(levels), 0)
        codes = (block_diag(*(s.astype(np.intp) - unused for s in samples)) + unused).astype(np.uint8)
        sizes = [len(s) for s in samples]
        centre, spread = (
            block_diag(*(np.broadcast_to(a, n)[:, None] for a, n in zip(own, sizes, strict=True)))
            for own in (centres, spreads)
        )
        basis = replace(
            basis,
            order=np.arange(len(codes)),
            vectors=np.hstack([p.vectors for p in gaussian]).astype(np.float64),
            outside_scale=np.array([p.prior_variance for p in gaussian]) * model.prior_scale**2,
            edges=np.cumsum([0, *sizes]),
        )
    else:
        codes = np.hstack(samples)
        centre, spread = np.stack(centres, axis=1), np.stack(spreads, axis=1)
        unit = spread[0]  # what is left of a sequential posterior's scales are powers of two
        centre, spread = centre / unit, spread / unit
    unit = model.prior_scale * unit
    return assemble(basis, codes, levels, unit, model.outputs, arithmetic, centre=centre, spread=spread)


def _affine_levels(posterior: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return one table of a posterior's levels, with a centre and a spread per weight."""
    if isinstance(posterior, SequentialPosterior) and posterior.unit_levels.ndim == 1:
        scales = posterior.level_scales
        centres = posterior.centres if posterior.centres.size else np.zeros(len(scales))
        return posterior.unit_levels, centres, scales
    return affine_levels((posterior if isinstance(posterior, FactorizedCategorical) else posterior.weights).levels)


def _rounded_samples(
    model: FittedBasisModel,
    n_samples: int,
    arithmetic: str,
    rng: np.random.Generator,
    rows: FloatArray,
    grid: FloatArray,
) -> QuantizedPredictor:
    """Round samples of the posterior of Φ's own weights to levels that all of them share, at the best scale."""
    features, posteriors = model.basis.map, model.posteriors
    if isinstance(features, NystroemFeatures | TransformerFeatures):
        raise IntegerArithmeticError(
            f"these levels need Fourier(rank_inputs=False), got {features.kind!r}, or let pydirect.fit_quantized choose"
        )
    shown = rows[np.sort(rng.permutation(len(rows))[:MOST_METRIC_ROWS])]
    phi = np.asarray(model.basis.transform(shown, n_threads=resolve_n_threads(None)))
    metric = phi.T @ phi
    metric[np.diag_indices_from(metric)] += METRIC_RIDGE * metric.diagonal().mean() + 1e-300
    targets = (sample_targets(p, n_samples, rng) for p in posteriors)
    codes, scales = zip(*(rounded_on_best_scale(t, grid, metric) for t in targets), strict=True)
    unit = np.array(scales) * model.prior_scale
    return assemble(_linear_basis(model), np.vstack(codes).T, grid, unit, model.outputs, arithmetic)


def _linear_basis(model: FittedBasisModel) -> LinearBasis:
    missing_scale = np.broadcast_to(model.prior_scale**2, (len(model.posteriors),)).copy()
    return LinearBasis.of_columns(model.basis, missing_scale, model.mean_missing)


LEVELS = ("model", "even")
MOST_SAMPLES = 256


def quantize(
    model: Quantizable,
    n_samples: int = 16,
    *,
    X: ArrayLike | None = None,
    levels: str = "model",
    n_levels: int | None = None,
    arithmetic: str = "float",
    random_state: RandomState = 0,
) -> QuantizedPredictor:
    """Quantise a fitted estimator to a few posterior samples with packed level indices.

    Basis functions whose weights are zero in every sample are dropped.

    Parameters
    ----------
    model : DirectRegressor or DirectClassifier
        Fitted; anything with a method ``quantizable``, see `pydirect.quantized.fitted`. ``arithmetic="float"`` allows
        any basis and features; integers require Fourier features or the columns themselves (``"linear"``), no normal
        scores (``Fourier(rank_inputs=False)``) and levels that all weights share but for a power of two: those of
        ``posterior="sequential"``, or ``levels="even"`` here. `pydirect.fit_quantized` fits such a model to a number of
        bytes.
    n_samples : int, default=16
        At most 256. They are chosen so that mean and variance over the samples are those of the posterior. A sequential
        posterior keeps stratified draws, any first few of which have nearly its mean: they are the samples, at most as
        many as were kept; a single one is the vector that takes the most probable level each time.
    X : array_like of shape (n_rows, n_features_in), optional
        Typical rows, such as the training rows. Required for ``levels="even"``; integers are compared with floating
        point there.
    levels : {"model", "even"}, default="model"
        ``"model"``: those the model was fitted with. ``"even"``: samples of the posterior are rounded to `n_levels`
        evenly spaced levels shared by all weights of Φ, the errors of the weights compensating each other at the rows
        of `X`, and those of the samples in their mean.
    n_levels : int, optional
        With ``levels="even"``: odd, 3 to 255, by default 15.
    arithmetic : {"float", "integer"}, default="float"
        Arithmetic of predictions. Standard deviations in integers omit the variance that floating point adds where
        inputs are beyond the reach of the linear part; see `QuantizedModel.with_arithmetic`.
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
        When integers clip inputs at rows of `X`, or move means there by more than their standard
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
    as_choice(levels, "levels", LEVELS)
    if n_levels is not None and levels == "model":
        raise ValueError("n_levels must come with levels='even': a model has its own")
    as_choice(arithmetic, "arithmetic", ARITHMETICS)
    rows, rng = None if X is None else fitted.outputs.rows(X), as_generator(random_state)
    if levels == "model":
        quantised = _posterior_samples(fitted, n_samples, arithmetic, rng)
    else:
        grid = unit_levels(15 if n_levels is None else n_levels)
        if rows is None:
            raise ValueError(f"X must be given for levels={levels!r}: rows at which predictions are to agree")
        quantised = _rounded_samples(fitted, n_samples, arithmetic, rng, rows, grid)
    if arithmetic == "integer":
        quantised.program.prove()
        if rows is not None:
            warn_of_losses(quantised, rows)
    return quantised


MOST_CHECKED_ROWS = 2048
# Integers may move a mean by its standard deviation plus this fraction of the spread of all means, and single precision
# an input by this fraction of its spread before it is named as the reason.
LARGEST_MOVE, LARGEST_INPUT_MOVE = 0.1, 1e-3


def warn_of_losses(model: QuantizedPredictor, rows: FloatArray) -> None:
    """Warn when a model in integers clips rows of X, or moves means by more than their standard deviation."""
    rows = np.ascontiguousarray(rows[:: -(-len(rows) // MOST_CHECKED_ROWS)])
    exact = FloatPath(model)
    values = exact.run(rows)
    mean, std = exact.mean(values), exact.std(values)
    moved = np.abs(model.program.mean(model.program.run(rows)) - mean) > std + LARGEST_MOVE * mean.std(axis=0)
    lost = moved.any(axis=1)
    if model.basis.features.reach > input_reach(model.basis.features.map):  # else clipping is part of the model
        lost |= ~model.in_range(rows)
    if lost.any():
        where = f"at {lost.sum()} of {len(rows)} rows of X{_reason(model, rows)}"
        warn(f"integers clip or move predictions {where}; see in_range", IntegerArithmeticWarning, stacklevel=3)


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
