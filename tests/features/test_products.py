"""Feature maps as products over inputs give the same basis functions."""

import numpy as np
import pytest

from pydirect.features.maps import FourierFeatures, LinearFeatures, PolynomialFeatures, PrecomputedFeatures

RNG = np.random.default_rng(0)
D = 4
MAPS = {
    "fourier": FourierFeatures(RNG.standard_normal((D, 6)), RNG.random(6), np.array([0.3, 0.4, 0.2]), 0.7),
    "waves alone": FourierFeatures(RNG.standard_normal((D, 6)), RNG.random(6)),
    "linear": LinearFeatures(D, intercept_scale=2.0),
    "polynomial": PolynomialFeatures(D, 3),
    "precomputed": PrecomputedFeatures(D),
}


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("groups", [[0, 1, 2, 3], [1, 0, 1, 0]], ids=["inputs", "pairs of inputs"])
def test_products_over_groups_are_the_basis_functions(name, groups):
    features, x = MAPS[name], 4 * RNG.standard_normal((1, D))  # beyond where linear inputs are clipped
    products = features.products()
    factors = products.factors(x[0], np.array(groups), max(groups) + 1)
    assert factors.shape == (max(groups) + 1, products.n_terms)
    np.testing.assert_allclose((factors.prod(axis=0) @ products.matrix).real, features.transform(x)[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "groups", "degree"),
    [("fourier", range(4), 4), ("linear", range(4), 1), ("polynomial", range(4), 3), ("polynomial", [0, 1, 1, 0], 2)],
)
def test_the_degree_is_the_largest_number_of_groups_in_a_product(name, groups, degree):
    assert MAPS[name].products().degree(np.array(groups)) == degree
