"""Quantising models that are linear in basis functions, and assembling quantised models from their parts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import resolve_n_threads
from pydirect._validation import FloatArray
from pydirect.direct.mixture_posterior import MixturePosterior
from pydirect.direct.sequential_posterior import SequentialPosterior
from pydirect.distributions.categorical import FactorizedCategorical
from pydirect.features.inputs import InputMap
from pydirect.features.maps import (
    FeatureMap,
    FourierFeatures,
    NystroemFeatures,
    PrecomputedFeatures,
    TransformerFeatures,
)
from pydirect.linear.posterior import GaussianPosterior
from pydirect.quantized.errors import IntegerArithmeticError
from pydirect.quantized.fitted import FittedBasisModel, LinearBasis, NetworkBasis, Outputs
from pydirect.quantized.integer.compile import INPUT_REACH, lay_out
from pydirect.quantized.levels import affine_levels, shared_levels, zero_code
from pydirect.quantized.packing import PackedCodes, bits_for
from pydirect.quantized.predictors import QuantizedClassifier, QuantizedPredictor, QuantizedRegressor
from pydirect.quantized.samples import choose_samples, rounded_on_best_scale, sample_targets


@dataclass(frozen=True)
class Encoding:
    """Storage and arithmetic of a quantised model; see `quantize`."""

    layout: str = "auto"
    feature_bits: int = 16
    frequency_bits: int | str = "auto"
    arithmetic: str = "float"


@dataclass(frozen=True)
class Weights:
    """Samples of weights as level indices."""

    # uint8 (n_basis_functions, n_outputs · n_samples)
    codes: NDArray[np.uint8]
    # (n_levels,)
    levels: FloatArray
    # (n_outputs,): a weight is ``unit · (centre + spread · level)``, in units of the standardised target
    unit: FloatArray
    # centre, spread: (n_basis_functions, n_outputs) or (1, 1)
    centre: FloatArray
    spread: FloatArray

    @classmethod
    def on_grid(cls, codes: NDArray[np.uint8], grid: FloatArray, unit: FloatArray) -> Weights:
        """Return weights with the same levels, ``unit · grid``, for every basis function."""
        return cls(codes, grid, unit, np.zeros((1, 1)), np.ones((1, 1)))


def assemble(
    basis: LinearBasis | NetworkBasis, weights: Weights, outputs: Outputs, encoding: Encoding
) -> QuantizedPredictor:
    """Assemble a quantised regressor, or a classifier when the outputs have classes."""
    if isinstance(basis, LinearBasis):  # missing variance is relative to the outputs' scale
        factor = 1 / weights.unit**2
        missing, outside = basis.missing_scale * factor, basis.outside_scale * factor
        basis = replace(basis, missing_scale=missing, outside_scale=outside)
    levels = weights.levels
    kind = QuantizedRegressor if outputs.classes is None else QuantizedClassifier
    return kind(
        basis=basis,
        packed=PackedCodes.pack(weights.codes, bits_for(len(levels)), zero_code(levels), encoding.layout),
        levels=levels,
        centre=weights.centre,
        spread=weights.spread,
        feature_bits=encoding.feature_bits,
        frequency_bits=encoding.frequency_bits,
        arithmetic=encoding.arithmetic,
        **(vars(outputs) | {"scale": outputs.scale * weights.unit}),
    )


# Ridge of the metric where rows do not determine how weights act, relative to its mean diagonal.
METRIC_RIDGE = 1e-3
MOST_METRIC_ROWS = 2048


def quantize_basis_model(
    model: FittedBasisModel,
    n_samples: int,
    method: str,
    rows: FloatArray | None,
    grid: FloatArray | None,
    encoding: Encoding,
    rng: np.random.Generator,
) -> QuantizedPredictor:
    """Quantise a model that is linear in basis functions; see `quantize`.

    `method`: {"moments", "draw", "most_probable"}. `rows`, (n_rows, n_features_in). `grid`, (n_levels,): levels that
    samples are rounded to, at the best scale; by default the posterior's own levels.
    """
    precomputed = isinstance(model.basis.map, PrecomputedFeatures)
    if precomputed and encoding.arithmetic == "integer" and rows is None:
        raise ValueError("X must be given for integers of precomputed columns: rows that show the columns' ranges")
    phi = None
    if rows is not None and not isinstance(model.basis.map, TransformerFeatures):
        chosen = rows[np.sort(rng.permutation(len(rows))[:MOST_METRIC_ROWS])]
        phi = np.asarray(model.basis.transform(chosen, n_threads=resolve_n_threads(None)))
    if grid is None or phi is None:
        basis, weights = _posterior_samples(model, n_samples, method, phi, rng)
    else:
        basis, weights = _rounded_samples(model, n_samples, method, phi, grid, rng)
    quantised = assemble(basis, weights, model.outputs, encoding)
    return _with_ranges(quantised, rows) if precomputed and rows is not None else quantised


def _posterior_samples(
    model: FittedBasisModel, n_samples: int, method: str, phi: FloatArray | None, rng: np.random.Generator
) -> tuple[LinearBasis, Weights]:
    """Choose samples of the posterior's own level indices."""
    features = model.basis.map
    if isinstance(features, TransformerFeatures):
        raise ValueError("features must be built in to be quantised, got a transformer: use features='precomputed'")
    posteriors: list[Any] = [
        FactorizedCategorical.of_gaussians(p.mean, p.std, model.n_levels) if isinstance(p, GaussianPosterior) else p
        for p in model.posteriors
    ]
    samples = []
    for p, on_levels in zip(model.posteriors, posteriors, strict=True):
        independent = phi @ p.vectors if isinstance(p, GaussianPosterior) and phi is not None else phi
        samples.append(choose_samples(on_levels, n_samples, method, rng, independent).T)
    tables = [_affine_levels(p) for p in posteriors]
    levels, unit = shared_levels([t[0] for t in tables]), np.ones(len(posteriors))
    if isinstance(model.posteriors[0], GaussianPosterior):
        basis, codes, centre, spread = _in_blocks(model, samples, tables, max(zero_code(levels), 0))
    else:
        codes = np.hstack(samples)
        centre, spread = (np.stack([t[k] for t in tables], axis=1) for k in (1, 2))
        unit = spread[0]  # what is left of a sequential posterior's scales are powers of two
        centre, spread = centre / unit, spread / unit
        order = _order(features, (codes != zero_code(levels)).any(axis=1), spread[:, 0])
        if len(centre) > 1:
            centre, spread = centre[order], spread[order]
        basis, codes = without_unused(_linear_basis(model, order)), codes[order]
    if not centre.any() and (spread == 1.0).all():
        centre, spread = np.zeros((1, 1)), np.ones((1, 1))
    return basis, Weights(codes, levels, model.prior_scale * unit, centre, spread)


def _affine_levels(posterior: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return one table of a posterior's levels, with a centre and a spread per weight."""
    if isinstance(posterior, SequentialPosterior) and posterior.unit_levels.ndim == 1:
        scales = posterior.level_scales
        centres = posterior.centres if posterior.centres.size else np.zeros(len(scales))
        return posterior.unit_levels, centres, scales
    whole = isinstance(posterior, FactorizedCategorical | MixturePosterior)
    return affine_levels(posterior.levels if whole else posterior.weights.levels)


def _in_blocks(
    model: FittedBasisModel,
    samples: list[NDArray[np.uint8]],
    tables: list[tuple[FloatArray, FloatArray, FloatArray]],
    unused: int,
) -> tuple[LinearBasis, NDArray[np.uint8], FloatArray, FloatArray]:
    """Return basis, codes, centre and spread of Gaussian posteriors.

    Every output has its own directions: they form consecutive blocks, with no spread for the other outputs.
    """
    posteriors = [p for p in model.posteriors if isinstance(p, GaussianPosterior)]
    edges = np.cumsum([0] + [len(s) for s in samples])
    n_columns = samples[0].shape[1]
    codes = np.full((edges[-1], len(samples) * n_columns), unused, dtype=np.uint8)
    centre, spread = np.zeros((2, edges[-1], len(samples)))
    for k, (s, table) in enumerate(zip(samples, tables, strict=True)):
        here = slice(edges[k], edges[k + 1])
        codes[here, k * n_columns : (k + 1) * n_columns] = s
        centre[here, k], spread[here, k] = table[1], table[2]
    basis = replace(
        _linear_basis(model, np.arange(edges[-1])),
        vectors=np.hstack([p.vectors for p in posteriors]).astype(np.float64),
        outside_scale=np.array([p.prior_variance for p in posteriors]) * model.prior_scale**2,
        edges=edges,
    )
    return basis, codes, centre, spread


def _rounded_samples(
    model: FittedBasisModel, n_samples: int, method: str, phi: FloatArray, grid: FloatArray, rng: np.random.Generator
) -> tuple[LinearBasis, Weights]:
    """Round samples of the posterior of Φ's own weights to levels that all of them share."""
    features, posteriors = model.basis.map, model.posteriors
    if isinstance(features, NystroemFeatures | TransformerFeatures):
        raise IntegerArithmeticError(
            f"shared levels need features of their own weights, got {features.kind!r}: fit with "
            "features=Fourier(rank_inputs=False), or let pydirect.fit_quantized choose a model of a given size"
        )
    metric = phi.T @ phi
    metric[np.diag_indices_from(metric)] += METRIC_RIDGE * metric.diagonal().mean() + 1e-300
    codes, scales = [], np.empty(len(posteriors))
    for k, p in enumerate(posteriors):
        targets = sample_targets(p, n_samples if method != "most_probable" else 1, method, rng)
        chosen, scales[k] = rounded_on_best_scale(targets, grid, metric)
        codes.append(chosen.T)
    matrix = np.hstack(codes)
    order = _order(features, (matrix != zero_code(grid)).any(axis=1), np.ones(1))
    basis = without_unused(_linear_basis(model, order))
    return basis, Weights.on_grid(matrix[order], grid, scales * model.prior_scale)


def _linear_basis(model: FittedBasisModel, order: NDArray[np.intp]) -> LinearBasis:
    missing_scale = np.broadcast_to(model.prior_scale**2, (len(model.posteriors),)).copy()
    return LinearBasis.of_columns(model.basis, order, missing_scale, model.mean_missing)


def _order(features: FeatureMap, used: NDArray[np.bool_], spread: FloatArray) -> NDArray[np.intp]:
    """Return the columns that are used, in the order of an integer program if there is one.

    `spread`, (n_weights,) or (1,): scale of the levels.
    """
    try:
        return lay_out(features, used, np.broadcast_to(spread, used.shape)).order
    except IntegerArithmeticError:
        return np.flatnonzero(used)


def with_frequencies(features: FourierFeatures, chosen: NDArray[np.intp]) -> FourierFeatures:
    """Return features with some of the frequencies."""
    frequencies = np.ascontiguousarray(features.frequencies[:, chosen])
    return replace(features, frequencies=frequencies, amplitudes=features.amplitudes[chosen])


def without_unused(basis: LinearBasis) -> LinearBasis:
    """Drop frequencies that no weight uses, keeping one if none is used."""
    features = basis.features.map
    if not isinstance(features, FourierFeatures):
        return basis
    f = features.n_frequencies
    kept = np.unique(basis.order[basis.order < 2 * f] % f)
    if not kept.size:  # a feature map has at least one; no program stores it
        kept = np.zeros(1, dtype=np.intp)
    smaller = with_frequencies(features, kept)
    new = np.full(features.n_weights, -1)
    new[np.concatenate([kept, f + kept, np.arange(2 * f, features.n_weights)])] = np.arange(smaller.n_weights)
    return replace(basis, features=replace(basis.features, map=smaller), order=new[basis.order])


def _with_ranges(model: QuantizedPredictor, rows: FloatArray) -> QuantizedPredictor:
    """Divide precomputed columns by powers of two, so that integers hold twice their largest magnitude in rows of X.

    Weights are multiplied by the same powers; columns with the same power are adjacent.
    """
    basis = model.basis
    if not isinstance(basis, LinearBasis) or basis.vectors is not None:
        return model
    largest = np.abs(rows).max(axis=0)
    unit = 2.0 ** np.ceil(np.log2(np.where(largest > 0, largest, 1.0) * 2 / INPUT_REACH))
    spread = np.broadcast_to(model.spread, (len(basis.order), model.spread.shape[1])) * unit[basis.order, None]
    order = np.argsort(-spread[:, 0], kind="stable")
    packed, scaled = model.packed, replace(InputMap.identity(basis.features.n_features_in), scale=unit)
    return replace(
        model,
        basis=replace(basis, features=replace(basis.features, input_map=scaled), order=basis.order[order]),
        packed=PackedCodes.pack(np.ascontiguousarray(model.codes[order]), packed.bits, packed.zero, packed.layout),
        spread=spread[order],
    )
