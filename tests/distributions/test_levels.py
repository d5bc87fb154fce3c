import numpy as np
import pytest

from pydirect.distributions.levels import as_levels, evenly_spaced_levels, pad_levels

PER_WEIGHT = np.array([[-1.0, 0.0, 2.0], [0.0, 0.5, 1.0], [-3.0, -2.0, 5.0]])


@pytest.mark.parametrize("n_levels", [2, 3, 15, 16, 256])
def test_evenly_spaced_levels_are_symmetric_with_zero_when_odd(n_levels):
    levels = evenly_spaced_levels(n_levels, 2.7)
    np.testing.assert_array_equal(levels, -levels[::-1])
    np.testing.assert_allclose(np.diff(levels), 5.4 / (n_levels - 1))
    assert (0.0 in levels) == (n_levels % 2 == 1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1,), ValueError, "n_levels must be at least 2"),
        ((257,), ValueError, "n_levels must be at most 256"),
        ((3.0,), TypeError, "n_levels must be an integer"),
        ((True,), TypeError, "n_levels must be an integer"),
        ((3, 0.0), ValueError, "reach must be above 0"),
        ((3, np.inf), ValueError, "reach must be"),
        ((3, "2"), TypeError, "reach must be a number"),
    ],
)
def test_evenly_spaced_levels_names_the_wrong_argument(arguments, error, message):
    with pytest.raises(error, match=message):
        evenly_spaced_levels(*arguments)


def test_levels_are_shared_or_one_row_per_weight():
    assert as_levels([1, 2, 3]).shape == (1, 3)
    assert as_levels([[1, 2, 3]], 5).shape == (1, 3)
    assert as_levels(PER_WEIGHT, 3).shape == (3, 3)
    with pytest.raises(ValueError, match=r"levels must have shape \(4, n_levels\), got \(3, 3\)"):
        as_levels(PER_WEIGHT, 4)
    with pytest.raises(ValueError, match="levels must be finite, got nan at index"):
        as_levels([0.0, np.nan])
    with pytest.raises(ValueError, match="levels must be 1 to 256 per weight, got 257"):
        as_levels(np.arange(257.0))
    with pytest.raises(TypeError, match="levels must hold real numbers"):
        as_levels(["a", "b"])


@pytest.mark.parametrize("n_levels", [1, 7, 8, 9])
def test_padding_of_levels_has_no_prior_mass(n_levels):
    levels, log_prior = pad_levels(np.ones((2, n_levels)), np.zeros((1, n_levels)))
    assert levels.shape[1] == log_prior.shape[1] == 8 * ((n_levels + 7) // 8)
    np.testing.assert_array_equal(np.exp(log_prior[0]), np.arange(levels.shape[1]) < n_levels)
