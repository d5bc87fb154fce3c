import numpy as np
from numpy.testing import assert_allclose

from pydirect.features.derivatives import diagonal_derivative, direction_of, moving_columns
from pydirect.features.inputs import InputMap
from pydirect.features.kernel import KernelHyperparameters
from pydirect.features.maps import NystroemFeatures

STEP = 1e-6


def kernel_of(n_inputs, smoothness=1.5, ard=1.3):
    scales = np.linspace(0.7, 1.6, n_inputs)
    return KernelHyperparameters(0.1, ard, scales, 0.4, 1.2, 0.5, n_inputs - 1, smoothness)


def test_at_a_landmark_radial_parts_are_flat():
    features = NystroemFeatures.at(np.array([[0.3, -0.2]]), KernelHyperparameters(0.1, 1, np.ones(2), 1, 1, 0, 0))
    assert features.gradient(features.landmarks)([(0, np.ones(1))]) == 0


def test_prior_variance_changes_with_the_linear_part():
    kernel, inputs = kernel_of(2), np.array([[1.5, 0.0], [-7.0, 1.0]])
    moved = np.array([[STEP, 0.0], [STEP, 0.0]])
    expected = (kernel.diagonal(inputs + moved) - kernel.diagonal(inputs - moved)) / (2 * STEP)
    found = diagonal_derivative(kernel, inputs, [(0, np.ones(2))])
    assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert found[0] > 0 and found[1] == 0


def test_a_column_moves_its_standardised_input_and_its_normal_score():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.exponential(size=40), np.ones(40), rng.integers(0, 2, 40)])
    input_map = InputMap.fit(x, None, rank=True)
    rows = np.vstack([x[:5] + 0.01, [[x[:, 0].min() - 1, 1, 0], [x[:, 0].max() + 1, 1, 0]]])
    step = np.array([1e-7, 0, 0])
    expected = (input_map.transform(rows + step) - input_map.transform(rows - step)) / 2e-7
    found = np.zeros_like(expected)
    for k, rate in direction_of(input_map, rows, 0):
        found[:, k] = rate
    assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert (found[-2:, -1] == 0).all()  # beyond the knots
    assert direction_of(input_map, rows, 1) == []  # constant
    assert len(direction_of(input_map, rows, 2)) == 1  # two values have no scores of their own


def test_categories_and_constant_columns_do_not_move():
    # Column 0 of numbers, 1 of three categories, 2 constant, 3 of numbers, then an indicator of what 3 lacks.
    origins, groups = np.array([0, 1, 1, 1, 2, 3, 3]), np.array([-1, 1, 1, 1, -1, -1, -1])
    assert moving_columns(np.array([0, 1, 2, 3, 5, 6]), groups, origins) == {0: 0, 3: 5}
