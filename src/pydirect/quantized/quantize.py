"""`quantize`: from a fitted estimator to a quantised model."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray, as_choice, as_count, as_generator
from pydirect.features.inputs import InputMap
from pydirect.features.maps import (
    FourierFeatures,
    NystroemFeatures,
    PrecomputedFeatures,
    TransformerFeatures,
)
from pydirect.networks.posterior import TrainedNetwork
from pydirect.quadratic.engines import INPUT_SCALE, NetworkShape
from pydirect.quadratic.network import NetworkPosterior
from pydirect.quantized.basis import LinearBasis, NetworkBasis
from pydirect.quantized.errors import IntegerArithmeticError, IntegerArithmeticWarning
from pydirect.quantized.integer.compile import FREQUENCY_BITS, INPUT_LIMIT, INPUT_UNIT, lay_out
from pydirect.quantized.lattice import rounded_on_best_scale, sample_targets
from pydirect.quantized.levels import affine_levels, shared_levels, unit_levels, zero_code
from pydirect.quantized.model import ARITHMETICS
from pydirect.quantized.packing import LAYOUTS, PackedCodes, bits_for
from pydirect.quantized.paths import FloatPath
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedPredictor, QuantizedRegressor
from pydirect.quantized.rows import as_rows
from pydirect.quantized.samples import METHODS, MOST_ROWS, choose_samples, shuffled_samples
from pydirect.regression.decorrelated import DecorrelatedPosterior
from pydirect.regression.mixture_posterior import MixturePosterior

LEVELS = ("model", "even", "power_of_two")
MOST_SAMPLES = 256
# Ridge of the metric where rows do not say how weights act, relative to its mean diagonal.
METRIC_RIDGE = 1e-3
MOST_METRIC_ROWS = 2048
# Integers may move a mean by its standard deviation and this part of the spread of all before a warning, and single
# precision an input by that part of its own before it is named as the reason.
LARGEST_MOVE, LARGEST_INPUT_MOVE = 0.1, 1e-3


def quantize(
    model: Any,
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
    """Quantise a fitted estimator: a few posterior samples as packed level indices.

    Basis functions whose weight is zero in every sample are dropped.

    Parameters
    ----------
    model : DirectRegressor, DirectClassifier or QuadraticBNNRegressor
        Fitted. Any basis and features will do for ``arithmetic="float"``; integers need Fourier features, the columns
        themselves (``"linear"``, ``"precomputed"``), no normal scores (``rank_inputs=False``) and levels that all
        weights share, those of ``basis="raw"`` or of ``levels="even"`` here. `pydirect.fit_within` fits such a model to
        a number of bytes. Networks have integers of 16 bits as they are.
    n_samples : int, default=16
        At most 256.
    method : {"moments", "draw", "most_probable"}, default="moments"
        ``"draw"``: independent draws, whose mean is off by a posterior standard deviation over √n_samples.
        ``"most_probable"``: every weight's most probable level, one sample without any spread. ``"moments"``: chosen so
        that mean and variance over the samples are those of the posterior.
    X : array_like of shape (n_rows, n_features_in), optional
        Typical rows, the training rows say: ``"moments"`` also matches the variance of predictions there, of networks
        the mean, too. Needed for
        ``levels`` other than ``"model"``, and for integers of precomputed columns, whose ranges it tells, and of
        networks: hidden units are cut off at no less than twice what they are there.
    levels : {"model", "even", "power_of_two"}, default="model"
        ``"model"``: those the model was fitted with. Else samples of the posterior, decorrelated or not, are rounded to
        `n_levels` levels shared by all weights of Φ, with the error of every weight made up for by the others at the
        rows of `X`, and that of every sample by the next: ``"even"``, or ``"power_of_two"``, 0 and ± powers of two.
    n_levels : int, optional
        15 by default; of ``levels`` other than ``"model"``: 3 to 255, odd.
    arithmetic : {"float", "integer"}, default="float"
        What predictions are made with. Standard deviations in integers leave out the variance that the float path adds
        where inputs are beyond the reach of the linear part; see `QuantizedModel.using`.
    feature_bits : {16, 8}, default=16
        Of a basis function in integer arithmetic; 16 for a network.
    frequency_bits : {"auto", 8, 16, 32}, default="auto"
        Of a frequency in integer arithmetic.
    layout : {"auto", "dense", "sparse"}, default="auto"
        Of the packed indices; ``"auto"`` is the smaller one.
    random_state : numpy.random.Generator, int or None, default=0

    Returns
    -------
    QuantizedRegressor or QuantizedClassifier

    Raises
    ------
    ValueError
        When an argument is not as described, or the model has no form of this kind (`IntegerArithmeticError`).
    TypeError
        When the model is not one of these estimators.

    Warns
    -----
    IntegerArithmeticWarning
        When integers cut off inputs or hidden units at rows of `X`, or move means there by more than their standard
        deviation. Inputs pass through single precision: from columns that are large beside their spread, such as UNIX
        time, an origin is subtracted first. Without `X`, or with `using` afterwards, nobody looks.
    """
    if not hasattr(model, "posteriors_"):
        raise TypeError(f"model must be a fitted estimator of pydirect, got {type(model).__name__}")
    if isinstance(model.posteriors_[0], TrainedNetwork):
        expected = "model must be an estimator of discrete weights (DirectRegressor, DirectClassifier or "
        raise TypeError(f"{expected}QuadraticBNNRegressor), got {type(model).__name__}, whose weights have no levels")
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
        if isinstance(model.posteriors_[0], NetworkPosterior):
            raise ValueError("levels must be 'model' for a network")
        grid = unit_levels(levels, 15 if n_levels is None else n_levels)
        if X is None:
            raise ValueError(f"X must be given for levels={levels!r}: rows at which predictions are to agree")
    rows = None if X is None else rows_like_those_of(model, X)
    rng = as_generator(random_state)
    common: dict[str, Any] = {"layout": layout, "feature_bits": feature_bits, "frequency_bits": frequency_bits}
    precomputed = hasattr(model, "features_") and isinstance(model.features_.map, PrecomputedFeatures)
    if precomputed and arithmetic == "integer" and rows is None:
        raise ValueError("X must be given for integers of precomputed columns: rows that tell the columns' ranges")
    if isinstance(model.posteriors_[0], NetworkPosterior):
        with single_blas_thread():
            quantised = _quantize_network(model, n_samples, method, rows, rng, **common)
    elif grid is None or rows is None:
        quantised = _quantize_posterior(model, n_samples, method, rows, rng, **common)
    else:
        quantised = _quantize_rounded(model, n_samples, method, rows, grid, rng, **common)
    if precomputed and rows is not None:
        quantised = with_ranges(quantised, rows)
    if arithmetic == "integer":
        quantised = quantised.using(arithmetic)
        if rows is not None:
            warn_of_losses(quantised, rows)
    return quantised


def warn_of_losses(model: QuantizedPredictor, rows: FloatArray) -> None:
    """Warn when a model in integers cuts off rows of X, or moves means by more than their standard deviation."""
    rows = rows[:: -(-len(rows) // MOST_METRIC_ROWS)]
    mean, std = FloatPath(model).moments(rows)
    moved = np.abs(model.path.mean(rows) - mean) > std + LARGEST_MOVE * mean.std(axis=0)
    lost = ~model.in_range(rows) | moved.any(axis=1)
    if not lost.any():
        return
    columns = model.program.columns
    read, names = rows[:, columns], model.feature_names or range(model.n_features_in)
    with np.errstate(over="ignore"):
        rounding = np.abs(read.astype(np.float32) - read).max(axis=0) / np.maximum(read.std(axis=0), 1e-300)
    beyond = np.abs(read - model.input_ranges()[columns].mean(axis=1)) / np.ptp(model.input_ranges()[columns], axis=1)
    if rounding.max(initial=0.0) > LARGEST_INPUT_MOVE:
        worst = int(rounding.argmax())
        reason = (
            f": single precision, which inputs pass through, moves column {names[columns[worst]]!r} by up to "
            f"{rounding[worst]:.2g} of its standard deviation: subtract an origin from it before the fit, or let the "
            "device pass counts of its sensors (counts_per_unit= of to_c)"
        )
    elif beyond.max(initial=0.0) >= 0.5:
        reason = f": column {names[columns[int(beyond.max(axis=0).argmax())]]!r} is beyond what integers tell apart"
    else:
        reason = ""
    warnings.warn(
        f"integers cut off or move predictions at {lost.sum()} of {len(rows)} rows of X{reason}; see in_range, "
        "input_ranges and rounding_bound",
        IntegerArithmeticWarning,
        stacklevel=3,
    )


def with_ranges(model: QuantizedPredictor, rows: FloatArray) -> QuantizedPredictor:
    """Divide precomputed columns by powers of two, so that integers hold twice their largest magnitude in rows of X.

    Weights are multiplied by as much; columns of one power stand together.
    """
    basis = model.basis
    if not isinstance(basis, LinearBasis) or basis.vectors is not None or model.spread.shape[0] > 1:
        return model
    largest = np.abs(rows).max(axis=0)
    unit = 2.0 ** np.ceil(np.log2(np.where(largest > 0, largest, 1.0) * 2 / (INPUT_LIMIT * INPUT_UNIT)))
    order = np.argsort(-unit[basis.order], kind="stable")
    packed, scaled = model.packed, replace(InputMap.identity(basis.features.n_features_in), scale=unit)
    return replace(
        model,
        basis=replace(basis, features=replace(basis.features, input_map=scaled), order=basis.order[order]),
        packed=PackedCodes.pack(np.ascontiguousarray(model.codes[order]), packed.bits, packed.zero, packed.layout),
        spread=model.spread * unit[basis.order[order], None],
    )


def _outputs(model: Any) -> dict[str, Any]:
    """Units of a fitted estimator's outputs, and what a quantised model keeps besides."""
    n_outputs = len(model.posteriors_)
    shared = {"n_features_in": model.n_features_in_, "one_dimensional": model._one_dimensional}
    shared["feature_names"] = column_names_of(model)
    if hasattr(model, "classes_"):
        zero = np.zeros(n_outputs)
        return {"scale": np.ones(n_outputs), "offset": model.intercept_, "noise": zero, "calibration": 1.0, **shared}
    noise = np.array([p.noise.variance for p in model.posteriors_]) * model.y_scale_**2
    units = {"scale": model.y_scale_, "offset": model.y_mean_, "noise": noise}
    return {**units, "calibration": model.calibration_scale_, **shared}


def column_names_of(model: Any) -> tuple[str, ...]:
    """Return the names of the columns that an estimator was fitted to."""
    return tuple(map(str, getattr(model, "feature_names_in_", ())))


def rows_like_those_of(model: Any, X: ArrayLike) -> FloatArray:
    """Return rows of X with the columns that an estimator was fitted to."""
    return as_rows(X, model.n_features_in_, column_names_of(model))


def _linear_basis(model: Any, order: NDArray[np.intp], vectors: FloatArray | None = None, **fields: Any) -> LinearBasis:
    n_outputs = len(model.posteriors_)
    missing = np.broadcast_to(model.prior_scale_**2, (n_outputs,))
    fields = {"outside_scale": np.zeros(n_outputs), "edges": np.zeros(n_outputs + 1, dtype=np.intp), **fields}
    return LinearBasis(
        replace(model.features_, target_scale=None, names=None, parameters={}),  # devices need none of them
        order,
        vectors,
        model.mean_missing_variance_,
        missing.copy(),
        **fields,
    )


def _rows_of_features(model: Any, rows: FloatArray | None, rng: np.random.Generator) -> FloatArray | None:
    if rows is None:
        return None
    chosen = rows[np.sort(rng.permutation(len(rows))[:MOST_METRIC_ROWS])]
    return np.ascontiguousarray(model._features_of(chosen)[1])


def _quantize_posterior(
    model: Any,
    n_samples: int,
    method: str,
    rows: FloatArray | None,
    rng: np.random.Generator,
    **common: Any,
) -> QuantizedPredictor:
    """Take samples of the posterior's own level indices."""
    features, posteriors = model.features_.map, model.posteriors_
    if isinstance(features, TransformerFeatures):
        raise ValueError("features must be built in to be quantised, got a transformer: use features='precomputed'")
    rotated = isinstance(posteriors[0], DecorrelatedPosterior)
    phi = _rows_of_features(model, rows, rng)
    samples = []
    for p in posteriors:
        independent = phi @ p.vectors if rotated and phi is not None else phi
        samples.append(choose_samples(p, n_samples, method, rng, independent).T)
    tables = [affine_levels(p.levels if isinstance(p, MixturePosterior) else p.weights.levels) for p in posteriors]
    levels = shared_levels([t[0] for t in tables])
    zero = zero_code(levels)
    if rotated:
        # Every output has directions of its own: they stand one output after the other, without spread for the others.
        edges = np.cumsum([0] + [len(s) for s in samples])
        n_columns = samples[0].shape[1]
        codes = np.full((edges[-1], len(samples) * n_columns), max(zero, 0), dtype=np.uint8)
        centre, spread = np.zeros((2, edges[-1], len(samples)))
        for k, (s, table) in enumerate(zip(samples, tables, strict=True)):
            here = slice(edges[k], edges[k + 1])
            codes[here, k * n_columns : (k + 1) * n_columns] = s
            centre[here, k], spread[here, k] = table[1], table[2]
        vectors = np.hstack([p.vectors for p in posteriors])
        outside = np.array([p.prior_variance for p in posteriors]) * model.prior_scale_**2
        basis = _linear_basis(model, np.arange(edges[-1]), vectors, outside_scale=outside, edges=edges)
    else:
        codes = np.hstack(samples)
        used = (codes != zero).any(axis=1)
        order = lay_out_or_used(features, used)
        centre, spread = (np.stack([t[k] for t in tables], axis=1) for k in (1, 2))
        if len(centre) > 1:
            centre, spread = centre[order], spread[order]
        basis, codes = without_unused(_linear_basis(model, order)), codes[order]
    if not centre.any() and (spread == spread[0]).all():
        centre, spread = centre[:1], spread[:1]
    return _assemble(model, basis, codes, levels, zero, centre, spread, model.prior_scale_, **common)


def _quantize_rounded(
    model: Any,
    n_samples: int,
    method: str,
    rows: FloatArray,
    grid: FloatArray,
    rng: np.random.Generator,
    **common: Any,
) -> QuantizedPredictor:
    """Round samples of the posterior of Φ's own weights to levels that all of them share."""
    features, posteriors = model.features_.map, model.posteriors_
    if isinstance(features, NystroemFeatures | TransformerFeatures):
        raise IntegerArithmeticError(
            f"shared levels need features of their own weights, got {features.kind!r}: fit with features='fourier' and "
            "rank_inputs=False, or let pydirect.fit_within choose a model of a given size"
        )
    phi = _rows_of_features(model, rows, rng)
    assert phi is not None
    metric = phi.T @ phi
    metric[np.diag_indices_from(metric)] += METRIC_RIDGE * metric.diagonal().mean() + 1e-300
    codes, scales = [], np.empty(len(posteriors))
    for k, p in enumerate(posteriors):
        targets = sample_targets(p, n_samples if method != "most_probable" else 1, method, rng)
        chosen, scales[k] = rounded_on_best_scale(targets, grid, metric)
        codes.append(chosen.T)
    matrix = np.hstack(codes)
    zero = zero_code(grid)
    order = lay_out_or_used(features, (matrix != zero).any(axis=1))
    basis = without_unused(_linear_basis(model, order))
    one = np.ones((1, 1))
    return _assemble(model, basis, matrix[order], grid, zero, 0 * one, one, scales * model.prior_scale_, **common)


def lay_out_or_used(features: Any, used: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the columns that are used, in a program's order where there is one."""
    try:
        return lay_out(features, used).order
    except IntegerArithmeticError:
        return np.flatnonzero(used)


def without_unused(basis: LinearBasis) -> LinearBasis:
    """Drop frequencies that no weight needs, but for one when none is needed."""
    features = basis.features.map
    if not isinstance(features, FourierFeatures):
        return basis
    f = features.n_frequencies
    kept = np.unique(basis.order[basis.order < 2 * f] % f)
    if not kept.size:  # a feature map has one at least; no program stores it
        kept = np.zeros(1, dtype=np.intp)
    smaller = FourierFeatures(
        np.ascontiguousarray(features.frequencies[:, kept]),
        features.amplitudes[kept],
        features.linear_scale,
        features.constant,
    )
    new = np.full(features.n_weights, -1)
    new[np.concatenate([kept, f + kept, np.arange(2 * f, features.n_weights)])] = np.arange(smaller.n_weights)
    return replace(basis, features=replace(basis.features, map=smaller), order=new[basis.order])


def _assemble(
    model: Any,
    basis: LinearBasis | NetworkBasis,
    codes: NDArray[np.uint8],
    levels: FloatArray,
    zero: int,
    centre: FloatArray,
    spread: FloatArray,
    scale: FloatArray,
    *,
    layout: str,
    feature_bits: int,
    frequency_bits: int | str,
) -> QuantizedPredictor:
    outputs = _outputs(model)
    bits = bits_for(len(levels))
    fields = {
        "basis": basis,
        "packed": PackedCodes.pack(codes, bits, zero, layout),
        "levels": levels,
        "centre": centre,
        "spread": spread,
        **outputs,
        "scale": outputs["scale"] * scale,
        "feature_bits": feature_bits,
        "frequency_bits": frequency_bits,
    }
    if isinstance(basis, LinearBasis):  # lacking variance is in units of the standardised target
        factor = 1 / scale**2
        missing, outside = basis.missing_scale * factor, basis.outside_scale * factor
        fields["basis"] = replace(basis, missing_scale=missing, outside_scale=outside)
    return (
        QuantizedClassifier(**fields, classes=model.classes_)
        if hasattr(model, "classes_")
        else QuantizedRegressor(**fields)
    )


def _quantize_network(
    model: Any, n_samples: int, method: str, rows: FloatArray | None, rng: np.random.Generator, **common: Any
) -> QuantizedPredictor:
    """Take samples of a network's level indices; rows tell what moments to match and how far integers have to reach."""
    posteriors, shape = model.posteriors_, model.posteriors_[0].shape
    matrix = INPUT_SCALE * model.rotation_.matrix
    basis = NetworkBasis(model.input_map_, matrix, shape, shape.largest_input, np.empty(0))
    samples = [choose_samples(p, n_samples, method, rng) for p in posteriors]
    if rows is not None:
        inputs = basis.transform(rows)[0]
        if method == "moments" and n_samples > 1:
            chosen = np.ascontiguousarray(inputs[np.sort(rng.permutation(len(rows))[:MOST_ROWS])])
            samples = [_shuffled(p, codes, chosen, rng) for p, codes in zip(posteriors, samples, strict=True)]
        pairs = zip(posteriors, samples, strict=True)
        reaches = [reach_of(shape, p.weights.values(codes), inputs) for p, codes in pairs]
        basis = replace(basis, reach=np.max(reaches, axis=0))
    tables = [affine_levels(p.weights.levels) for p in posteriors]
    levels = shared_levels([t[0] for t in tables])
    codes = np.ascontiguousarray(np.vstack(samples).T)
    centre, spread = (
        np.stack([np.broadcast_to(t[k], len(codes)) for t in tables], axis=1).astype(np.float64) for k in (1, 2)
    )
    one = np.ones(len(posteriors))
    return _assemble(model, basis, codes, levels, zero_code(levels), centre, spread, one, **common)


def _shuffled(posterior: NetworkPosterior, codes: NDArray[np.uint8], inputs: FloatArray, rng: Any) -> NDArray[np.uint8]:
    def functions(codes: NDArray[np.uint8]) -> FloatArray:
        return posterior.shape.forward(posterior.weights.values(codes), inputs)

    return shuffled_samples(codes, functions, posterior.latent_moments(inputs), rng)


def reach_of(shape: NetworkShape, weights: FloatArray, inputs: FloatArray) -> FloatArray:
    """Return the largest magnitude of network inputs, and of the sums of every hidden layer, (n_layers,).

    Parameters
    ----------
    shape : NetworkShape
    weights : ndarray of shape (n_networks, n_weights)
    inputs : ndarray of shape (n_rows, n_inputs)
    """
    hidden = islice(shape.sums(weights, inputs), shape.depth)
    return np.array([np.abs(inputs).max(initial=0.0), *(np.abs(a).max(initial=0.0) for a in hidden)])
