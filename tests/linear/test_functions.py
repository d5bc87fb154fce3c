"""Deviations by one product in single precision are those of double precision, or are not used."""

import numpy as np
import pytest

from pydirect import DirectRegressor, Gaussian, Nystroem
from pydirect.linear.functions import latent_variances, with_precision


def fitted(noise, n_columns=4, length_scale=1.0):
    rng = np.random.default_rng(0)
    x, new = rng.standard_normal((700, n_columns)), rng.standard_normal((40, n_columns))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + noise * rng.standard_normal(700)
    options = {"n_basis_functions": 600, "posterior": Gaussian(n_noise_levels=1), "local": False}
    return DirectRegressor(Nystroem(length_scale=length_scale), **options).fit(x, y), np.vstack([new, x[:20]])


def in_double_precision(model, rows):
    """Variances of f, standardised, term by term."""
    inputs, phi = model.model_.latent.phi(rows)
    variances = latent_variances(with_precision(model.posteriors_, np.float64), model.prior_scale_, phi)
    missing = model.model_.latent.beyond(inputs, phi)
    return variances + (0.0 if missing is None else missing)


@pytest.mark.parametrize("noise", [1.0, 0.1, 1e-2, 1e-4])
def test_deviations_are_those_of_double_precision(noise):
    model, rows = fitted(noise)
    expected = np.sqrt(in_double_precision(model, rows))
    found = np.sqrt(model.model_.latent.moments(rows, True)[1])
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    one = np.sqrt([model.model_.latent.moments(row[None], True)[1][0] for row in rows[::8]])
    np.testing.assert_allclose(one, expected[::8], rtol=1e-3)
    assert model.model_.latent._variances.folded is not None or noise < 0.1  # where it is worth most


def test_ill_conditioned_products_are_not_folded():
    model, rows = fitted(1e-4, n_columns=2, length_scale=0.3)
    assert model.posteriors_[0].vectors.shape == (600, 600)
    np.testing.assert_allclose(model.model_.latent.moments(rows, True)[1], in_double_precision(model, rows), rtol=1e-3)


def test_results_do_not_depend_on_threads():
    model, rows = fitted(0.1)
    rows = np.tile(rows, (10, 1))
    expected = model.set_params(n_threads=1).predict(rows, return_std=True)
    for one, other in zip(model.set_params(n_threads=3).predict(rows, return_std=True), expected, strict=True):
        assert one.tobytes() == other.tobytes()
