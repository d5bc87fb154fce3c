"""Quantising networks with quadratic activations: samples of their level indices."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from pydirect._threads import single_blas_thread
from pydirect._validation import FloatArray
from pydirect.quadratic.engines import NetworkShape
from pydirect.quadratic.network import NetworkPosterior
from pydirect.quantized.assemble import Encoding, Weights, assemble
from pydirect.quantized.fitted import FittedNetwork
from pydirect.quantized.levels import affine_levels, shared_levels
from pydirect.quantized.predictors import QuantizedPredictor
from pydirect.quantized.samples import MOST_ROWS, choose_samples, shuffled_samples


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
                samples = [_shuffled(p, codes, chosen, rng) for p, codes in zip(posteriors, samples, strict=True)]
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


def _shuffled(
    posterior: NetworkPosterior, codes: NDArray[np.uint8], inputs: FloatArray, rng: np.random.Generator
) -> NDArray[np.uint8]:
    def functions(codes: NDArray[np.uint8]) -> FloatArray:
        return posterior.shape.forward(posterior.weights.values(codes), inputs)

    return shuffled_samples(codes, functions, posterior.latent_moments(inputs), rng)


def reach_of(shape: NetworkShape, weights: FloatArray, inputs: FloatArray) -> FloatArray:
    """Return the largest magnitude of network inputs, and of the sums of every hidden layer, (n_layers,).

    `weights`, (n_networks, n_weights). `inputs`, (n_rows, n_inputs).
    """
    hidden = islice(shape.sums(weights, inputs), shape.depth)
    return np.array([np.abs(inputs).max(initial=0.0), *(np.abs(a).max(initial=0.0) for a in hidden)])
