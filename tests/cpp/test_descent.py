"""L-BFGS between bounds: minima of known functions, and what steps tell of the curvature."""

import numpy as np
import pytest

from pydirect import _core

HESSIAN = np.diag([1.0, 0.01, 3.0, 0.1, 10.0]) + 0.005
CENTRE = np.linspace(-1, 1, 5)


def quadratic(x):
    pull = HESSIAN @ (x - CENTRE)
    return float(0.5 * (x - CENTRE) @ pull), pull


def rosenbrock(x):
    a, b = x
    value = 100 * (b - a * a) ** 2 + (1 - a) ** 2
    return value, np.array([-400 * a * (b - a * a) - 2 * (1 - a), 200 * (b - a * a)])


def descent(x, lower=-np.inf, upper=np.inf, scale=1.0, steps=None):
    n = len(x)
    steps = np.empty((0, 2, n)) if steps is None else steps
    return _core.Descent(np.asarray(x, float), np.full(n, lower), np.full(n, upper), np.full(n, scale), steps)


def iterate(own, function, n_iterations, unit=1.0):
    for i in range(n_iterations):
        if not own.iterate(function, unit):
            return i
    return n_iterations


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_the_minimum_of_a_quadratic_function_is_found(scale):
    own = descent(np.full(5, 3.0), scale=scale)
    assert iterate(own, quadratic, 60) < 60
    assert own.value < 1e-6 and own.value == quadratic(own.x)[0]


def test_a_curved_valley_is_followed_to_its_end():
    own = descent([-1.2, 1.0], scale=0.1)
    iterate(own, rosenbrock, 100)
    np.testing.assert_allclose(own.x, 1.0, atol=1e-3)
    assert own.n_evaluations < 80


def test_at_bounds_the_other_parameters_are_at_their_minimum():
    own = descent(np.full(5, 0.8), lower=0.5, upper=0.9)
    iterate(own, quadratic, 60)
    x, gradient = own.x, quadratic(own.x)[1]
    inside = (x > 0.5) & (x < 0.9)
    assert (gradient[x == 0.5] > 0).all() and (gradient[x == 0.9] < 0).all()
    assert (np.abs(gradient[inside]) < 1e-3).all() and ((x == 0.5) | (x == 0.9)).any()
    assert x.min() >= 0.5 and x.max() <= 0.9


def test_a_start_outside_of_the_bounds_is_moved_inside():
    np.testing.assert_array_equal(descent([-3.0, 0.2, 5.0], -1.0, 1.0).x, [-1.0, 0.2, 1.0])


def test_a_unit_changes_no_step():
    own, other = descent(np.zeros(5)), descent(np.zeros(5))
    iterate(own, quadratic, 5)
    iterate(other, lambda x: tuple(64 * each for each in quadratic(x)), 5, unit=64.0)
    np.testing.assert_array_equal(own.x, other.x)


def test_the_learned_scale_is_that_of_the_inverse_that_steps_build():
    own = descent(np.full(5, 3.0), scale=1.5)
    iterate(own, quadratic, 4)
    inverse = np.eye(5) * 1.5**2
    for s, y in own.steps:
        left = np.eye(5) - np.outer(s, y) / (s @ y)
        inverse = left @ inverse @ left.T + np.outer(s, s) / (s @ y)
    assert len(own.steps) == 4
    np.testing.assert_allclose(own.scale, np.sqrt(inverse.diagonal()), rtol=1e-12)


def test_steps_of_before_are_known_again():
    first = descent(np.full(5, 3.0))
    iterate(first, quadratic, 30)
    again, new = descent(np.full(5, -2.0), steps=first.steps), descent(np.full(5, -2.0))
    for own in (again, new):
        iterate(own, quadratic, 4)
    assert again.value < 0.1 * new.value


def test_steps_along_which_a_function_is_not_convex_are_forgotten():
    steps = np.array([[[1.0, 0.0], [-1.0, 0.0]], [[0.0, 1.0], [0.0, 2.0]]])
    np.testing.assert_array_equal(descent([0.0, 0.0], steps=steps).steps, steps[1:])


def test_points_without_a_value_are_stepped_back_from():
    def logarithm(x):
        if x[0] <= 0:
            return np.nan, np.array([np.nan])
        return float(x[0] - np.log(x[0])), 1 - 1 / x

    own = descent([10.0], scale=30.0)
    iterate(own, logarithm, 40)
    np.testing.assert_allclose(own.x, 1.0, atol=1e-3)


def test_where_nothing_is_gained_there_is_no_step():
    flat = descent([1.0, 2.0])
    assert not flat.iterate(lambda x: (3.0, np.zeros(2)), 1.0)
    steep = descent([1.0], lower=1.0)
    assert not steep.iterate(lambda x: (float(x[0]), np.ones(1)), 1.0)
    np.testing.assert_array_equal(steep.x, [1.0])


def test_errors_of_the_function_reach_the_caller():
    def broken(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        descent([1.0]).iterate(broken, 1.0)
    with pytest.raises(ValueError, match="gradient must have shape"):
        descent([1.0]).iterate(lambda x: (0.0, np.zeros(2)), 1.0)


def test_a_new_function_is_evaluated_anew():
    own = descent(np.zeros(5))
    iterate(own, quadratic, 2)
    n, x = own.n_evaluations, own.x
    own.forget_value()
    own.iterate(lambda x: (0.0, np.zeros(5)), 1.0)
    assert own.n_evaluations == n + 1 and own.value == 0.0
    np.testing.assert_array_equal(own.x, x)
