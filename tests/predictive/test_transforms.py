"""Transforms of targets: inverses, derivatives, and what they refuse."""

import numpy as np
import pytest

from pydirect.predictive import TargetTransform

Y = np.random.default_rng(0).gamma(2.0, size=(20, 3))
TRANSFORM = TargetTransform(["log", "identity", "sqrt"], [0.0, 0.0, 0.5])


def test_inverse_undoes_forward():
    np.testing.assert_allclose(TRANSFORM.inverse(TRANSFORM.forward(Y)), Y, rtol=1e-13)
    np.testing.assert_array_equal(TRANSFORM.forward(Y)[:, 1], Y[:, 1])
    stacked = np.stack([Y, 2 * Y], axis=2)
    np.testing.assert_allclose(TRANSFORM.inverse(stacked)[:, :, 1], TRANSFORM.inverse(2 * Y), rtol=1e-15)


def test_log_derivative_is_that_of_forward():
    step = 1e-6
    slope = (TRANSFORM.forward(Y + step) - TRANSFORM.forward(Y - step)) / (2 * step)
    np.testing.assert_allclose(TRANSFORM.log_derivative(Y), np.log(slope), atol=1e-7)


def test_it_is_written_as_a_formula():
    assert str(TRANSFORM) == "log(y), y, sqrt(y + 0.5)"
    assert not TRANSFORM.is_identity
    assert TargetTransform(["identity"], [0.0]).is_identity


def test_equality_is_by_content():
    assert TargetTransform(("log",), (0,)) == TargetTransform(["log"], [0.0])


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        ("log", 0.0, r"y must be greater than 0 for log\(y\), got 0"),
        ("log", -2.0, r"y must be greater than 0 for log\(y\), got -2"),
        ("sqrt", -1.5, r"y must be greater than 0 for sqrt\(y\), got -1.5"),
    ],
)
def test_targets_without_a_transform_are_refused(name, y, message):
    with pytest.raises(ValueError, match=message):
        TargetTransform([name], [0.0]).forward([[1.0], [y]])
    with pytest.raises(ValueError, match=f"{message} in output 1"):
        TargetTransform(["identity", name], [0.0, 0.0]).log_derivative([[1.0, 1.0], [1.0, y]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["exp"], [0.0]), r"names\[0\] must be one of 'identity', 'log', 'sqrt', got 'exp'"),
        ((["log"], [0.0, 1.0]), "names and shifts must be one per output, got 1 and 2"),
        (([], []), "one per output"),
        ((["identity"], [1.0]), "shifts must be zero for the identity"),
        ((["log"], [np.nan]), r"shifts\[0\] must be finite"),
    ],
)
def test_wrong_arguments_are_refused_with_the_reason(arguments, message):
    with pytest.raises(ValueError, match=message):
        TargetTransform(*arguments)


def test_targets_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"y must have shape \(n_rows, 3\), got \(4, 2\)"):
        TRANSFORM.forward(np.ones((4, 2)))
