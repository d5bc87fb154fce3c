"""Bounds on the error of integer arithmetic: the largest difference from the same model in real numbers."""

from __future__ import annotations

import numpy as np

from pydirect._validation import FloatArray
from pydirect.features.inputs import InputMap
from pydirect.features.maps import FourierFeatures
from pydirect.quantized.compile import BasisLayout, integer_levels
from pydirect.quantized.fitted import LinearBasis, NetworkBasis
from pydirect.quantized.integers import ONE, SINE_ERROR
from pydirect.quantized.program import LIMIT, SQUARE_SHIFT, IntegerProgram, NetworkProgram, Program


def input_rounding(program: Program, input_map: InputMap) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the value of one integer step, the largest magnitude and the largest rounding error per input.

    All standardised, (n_inputs,) each.
    """
    unit = 1.0 / (program.multiplier.astype(np.float64) * input_map.scale[program.columns])
    mean = np.abs(input_map.mean[program.columns]) / input_map.scale[program.columns]
    largest = program.limit * unit
    # Half a step, and single precision: of the origin and of x, then of three operations.
    return unit, largest, unit / 2 + 2.0**-24 * (2 * mean + 4 * largest)


def rounding_bound(
    program: IntegerProgram, basis: LinearBasis, layout: BasisLayout, levels: FloatArray, scale: FloatArray
) -> FloatArray:
    """Bound on ``|integer − exact|`` for a sample's function wherever no input is clipped, (n_outputs,), units of y.

    Exact is Φw in real numbers for the same level indices. With ŵ_j what the integers represent and φ̂_j what is
    computed, ``|φ̂_j ŵ_j − φ_j w_j| ≤ |φ̂_j − φ_j| |ŵ_j| + |φ_j| |ŵ_j − w_j|``, summed; then the error of the gains on
    ``Σ_j φ̂_j ŵ_j``, half a unit for every shift, and the rounding of double precision beside a large offset.

    `levels`, (n_levels,). `scale`, (n_outputs,): from Φw to units of y.
    """
    multipliers, step = integer_levels(levels)
    errors, sizes = _feature_errors(program, basis, layout)
    amplitude = np.abs(layout.unit)
    used = np.abs(step * multipliers)[program.codes]
    bound = (amplitude * errors) @ used + (amplitude * sizes) @ np.abs(step * multipliers - levels)[program.codes]
    total_unit = abs(float(program.scale[0] * program.n_samples / scale[0]))  # a total of one, in units of Φw
    shifts = sum(abs(g.gain) * (2**g.shift > 1) / 2 for g in program.groups)
    gains = np.zeros(program.n_columns)
    unit, _, _ = input_rounding(program, basis.input_map)
    for g in program.groups:
        if amplitude[g.begin] == 0:
            continue
        reach = (amplitude * (sizes + errors))[g.begin : g.end] @ used[g.begin : g.end]
        # Inputs of a group have the same unit up to the rounding of their multipliers: the worst one counts.
        one = np.array([1.0 if g.kind == "leaves" else 1.0 / ONE[program.feature_bits]])
        if g.kind == "linear":
            one = unit[program.inputs_of(g)] * (256 if program.feature_bits == 8 else 1)
        true = amplitude[g.begin] * step * one
        gains += reach * np.abs(abs(g.gain) / 2.0**g.shift * total_unit / true - 1).max()
    per_column = (bound + gains + shifts * total_unit).reshape(program.n_outputs, -1)
    largest = ((amplitude * (sizes + errors)) @ used).reshape(per_column.shape).max(axis=1) * np.abs(scale)
    return np.abs(scale) * per_column.max(axis=1) + _rounding_beside(program.offset, largest)


def _feature_errors(program: IntegerProgram, basis: LinearBasis, layout: BasisLayout) -> tuple[FloatArray, FloatArray]:
    """Return bounds on the error and on the magnitude of every basis function, both before its amplitude.

    With Δx_i the rounding of input i, X_i its largest magnitude and Δν_fi the rounding of a frequency in turns, the
    phase is off by at most ``Σ_i |ν_fi| Δx_i + |Δν_fi| X_i`` turns, and a Fourier feature by ``2π · that +
    SINE_ERROR``; a linear one by Δx and the rounding to int8.
    """
    unit, largest, dx = input_rounding(program, basis.input_map)
    errors, sizes = np.zeros((2, program.n_basis_functions))
    if isinstance(basis.features.map, FourierFeatures):
        inputs = np.searchsorted(basis.input_map.kept, program.columns)
        turns = basis.features.map.frequencies[np.ix_(inputs, layout.frequencies)].T / (2 * np.pi)
        kept = program.frequencies * 2.0 ** program.phase_shift.astype(np.float64) / 2.0**32 / unit
        off = turns - kept
        off -= np.rint(off * unit) / unit  # whole turns per step
        phase = np.abs(turns) @ dx + np.abs(off) @ largest
        n = 2 * program.n_frequencies
        errors[:n] = np.repeat(np.minimum(2 * np.pi * phase, 2.0) + SINE_ERROR[program.feature_bits], 2)
        sizes[:n] = 1.0
    for g in program.groups:
        if g.kind == "linear":
            here, linear = slice(g.begin, g.end), program.inputs_of(g)
            errors[here] = dx[linear] + (128 * unit[linear] if program.feature_bits == 8 else 0.0)
            sizes[here] = np.minimum(largest[linear], program.linear_limit * unit[linear])
            if program.feature_bits == 8:
                errors[here] += np.maximum(sizes[here] - 127 * 256 * unit[linear], 0)
        else:  # a constant; leaves are exact but for rows within half a step of a threshold
            sizes[g.begin : g.end] = 1.0
    return errors, sizes


def _rounding_beside(offset: FloatArray, largest: FloatArray) -> FloatArray:
    """Bound the rounding in double precision beside an offset: of product and sum on both paths, and of a mean."""
    return np.asarray(3 * np.spacing(np.abs(offset) + largest))


def network_rounding_bound(
    program: NetworkProgram, basis: NetworkBasis, weights: FloatArray, scale: FloatArray, rows: FloatArray | None = None
) -> FloatArray:
    """Bound on ``|integer − exact|`` for a sample's function, units of y: at rows, or wherever nothing is clipped.

    Exact is the network in real numbers for the same level indices. With hats on what is computed, errors propagate
    through a layer as ``|Σ ŵ x̂ − Σ w x| ≤ Σ |ŵ − w| |x̂| + |w| |x̂ − x|``, plus the error of the factor and half a
    unit; through a square as ``|â² − a²| ≤ |â − a| (2 |â| + |â − a|)``, plus half a unit again. Magnitudes with a hat
    are those at the rows; without rows those that the program reaches with all weights and inputs positive.

    `weights`, (n_outputs · n_samples, n_weights). `scale`, (n_outputs,). `rows`, (n_rows, n_features_in). Returns an
    array (n_rows or 1, n_outputs).
    """
    unit, largest, input_error = input_rounding(program, basis.input_map)
    mean, scales = (a[program.columns] for a in (basis.input_map.mean, basis.input_map.scale))
    offset = (program.origin.astype(np.float64) - mean) / scales
    if rows is None:
        size = largest[None]
        z, values = np.full((1, basis.shape.n_inputs), LIMIT), np.abs(program.values)
    else:
        q = program.quantise_inputs(rows)
        z, values, size = program.features(q), program.values, np.abs(q) * unit
        # The rounding errors of these inputs are known.
        input_error = np.abs((rows[:, program.columns] - mean) / scales - offset - q * unit)
    matrix = basis.matrix[np.searchsorted(basis.input_map.kept, program.columns)]
    one, power = program.ones[0], 2.0 ** program.rotation_shift.astype(np.float64)
    rotation = program.rotation / (power * one)[:, None] / unit
    z_error = input_error @ np.abs(matrix) + size @ np.abs(rotation - matrix.T).T + 0.5 / one
    z_error = z_error + np.abs(program.rotation_offset / (power * one) - offset @ matrix)
    exact = [np.swapaxes(matrix, 1, 2) for matrix in basis.shape.matrices(weights)]
    error = z_error[None]
    for layer, (w, x, acc) in enumerate(program.layers(z, values)):  # noqa: B007
        if basis.shape.bias:
            error = np.concatenate([error, np.zeros((*error.shape[:2], 1))], axis=2)
        step, one = program.steps[layer], program.ones[layer]
        own = program.values[basis.shape.slices[layer]].reshape(*basis.shape.layers[layer], -1).T
        off = np.abs(own * step - exact[layer])
        error = np.abs(x) / one @ off + error @ np.abs(exact[layer])
        if layer == basis.shape.depth:
            break
        size_of_a = 1 / np.sqrt(program.ones[layer + 1] * 2.0**SQUARE_SHIFT)
        factor = program.rescale[layer] / 2.0 ** float(program.rescale_shift[layer])
        sums = np.abs(acc) * step / one
        error = error + sums * abs(factor * size_of_a / (step / one) - 1) + size_of_a / 2
        a = np.abs(program.activations(acc, layer)) * size_of_a
        error = error * (2 * a + error) + 0.5 / program.ones[layer + 1]
    sizes = np.abs(x).astype(np.float64) @ np.abs(w) * step / one
    error, size = (
        np.abs(scale) * a[:, :, 0].T.reshape(len(z), -1, program.n_samples).max(axis=2) for a in (error, sizes)
    )
    return np.asarray(error + _rounding_beside(program.offset, size))
