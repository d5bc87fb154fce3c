"""Every operation of the Kronecker algebra is that of the vectors it stands for."""

from itertools import pairwise

import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from pydirect import _core
from pydirect.kron import KroneckerSum, kronecker_vector, row_of_weights
from tests.helpers.expansions import expanded

# Few values, so that equal factors, ones, zeros and cancelling terms turn up.
few = st.sampled_from([0.0, 1.0, -1.0, 2.0, -0.5])
# Not so small that products of several differ by more than what one exponent can serve.
any_value = st.floats(-4.0, 4.0).map(lambda x: x if abs(x) > 1e-50 else 0.0)
grids = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(tuple)


@st.composite
def kron_sums(draw, sizes, n_data=None, max_terms=4, values=None):
    values = draw(st.sampled_from([few, any_value])) if values is None else values
    h, n = draw(st.integers(0, max_terms)), n_data or draw(st.integers(1, 3))
    positions = st.sets(st.integers(0, len(sizes) - 1))
    terms = [{p: draw(arrays(float, sizes[p], elements=values)) for p in draw(positions)} for _ in range(h)]
    return KroneckerSum.from_terms(sizes, terms, draw(arrays(float, (h, n), elements=values)))


@st.composite
def pairs(draw):
    """Two sums on one grid whose data points match."""
    sizes, n = draw(grids), draw(st.integers(1, 3))
    return [draw(kron_sums(sizes, draw(st.sampled_from([1, n])))) for _ in range(2)]


def close(got, expected):
    scale = 1 + np.abs(expected).max(initial=0.0)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12 * scale)


@given(grids, st.data())
def test_terms_are_what_they_say(sizes, data):
    h = data.draw(st.integers(1, 3))
    factors = [[data.draw(arrays(float, m, elements=few)) for m in sizes] for _ in range(h)]
    c = data.draw(arrays(float, (h, 2), elements=any_value))
    expected = 0
    for row, own in zip(c, factors, strict=True):
        vector = np.ones(1)
        for f in own:
            vector = np.kron(vector, f)
        expected = expected + row[:, None] * vector
    got = KroneckerSum.from_terms(sizes, [dict(enumerate(own)) for own in factors], c)
    close(expanded(got), expected)
    assert got.n_entries == expected.shape[1]


@given(pairs())
def test_addition_and_subtraction(pair):
    a, b = pair
    close(expanded(a + b), expanded(a) + expanded(b))
    close(expanded((a - b).compact()), expanded(a) - expanded(b))


@given(pairs())
def test_element_wise_products(pair):
    a, b = pair
    product = a * b
    close(expanded(product), expanded(a) * expanded(b))
    assert product.n_terms <= a.n_terms * b.n_terms


@given(grids.flatmap(kron_sums))
def test_squares_have_their_cross_terms(a):
    square = a.square()
    close(expanded(square), expanded(a) ** 2)
    assert square.n_terms <= a.n_terms * (a.n_terms + 1) // 2
    assert (a * a - square).compact().n_terms == 0 or np.abs(expanded(a * a - square)).max() < 1e-10


@given(pairs())
def test_inner_products(pair):
    a, b = pair
    expected = (expanded(a) * expanded(b)).sum(axis=1)
    got = a.inner(b)
    scale = 1 + (np.abs(expanded(a)) * np.abs(expanded(b))).sum()
    np.testing.assert_allclose(got.value, expected, rtol=1e-12, atol=1e-12 * scale)
    np.testing.assert_allclose(got.sign * np.exp(got.log), got.value, rtol=1e-12)
    np.testing.assert_allclose(b.inner(a).value, got.value, rtol=1e-12, atol=1e-12 * scale)


@given(pairs(), st.integers(1, 20))
def test_inner_products_have_the_same_bits_in_blocks_of_terms(pair, max_dots):
    arrays_of_pair = [s._arrays for s in pair]
    for got, expected in zip(
        _core.kron_inner(*arrays_of_pair, 1, max_dots), _core.kron_inner(*arrays_of_pair, 1), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


@given(pairs(), st.integers(-900, 900), st.integers(-900, 900))
def test_inner_products_far_from_one_are_those_near_it_shifted(pair, left, right):
    """Powers of two on the factors change exponents alone, though the slow path is taken."""
    a, b = pair
    near = a.inner(b)

    def shifted(s, power):  # onto the first position, where every term has a factor then
        factor = np.full(s.sizes[0], 2.0**power)
        return s.scale(0, factor)

    far = shifted(a, left).inner(shifted(b, right))
    scale = 1 + (np.abs(expanded(a)) * np.abs(expanded(b))).sum()
    got = np.ldexp(far.mantissa, np.where(far.mantissa == 0, 0, far.exponent - left - right).astype(np.int32))
    np.testing.assert_allclose(got, near.value, rtol=1e-12, atol=1e-12 * scale)


@given(pairs(), st.integers(-1000, 1000), st.integers(-1000, 1000))
def test_products_far_from_one_are_those_near_it_shifted(pair, left, right):
    """Powers of two change exponents alone, beyond the range of float64 too."""
    a, b = pair
    ones = KroneckerSum.from_terms(a.sizes.tolist(), [{}])
    near = (a * b).square().inner(ones)
    far = ((a * 2.0**left) * b.scale(0, np.full(b.sizes[0], 2.0**right))).square()
    got = far.inner(ones)
    scale = 1 + (expanded(a) ** 2 * expanded(b) ** 2).sum()
    exponent = np.where(got.mantissa == 0, 0, got.exponent - 2 * (left + right)).astype(np.int32)
    np.testing.assert_allclose(np.ldexp(got.mantissa, exponent), near.value, rtol=1e-12, atol=1e-12 * scale)
    for again, expected in zip(far.compact()._arrays, far._arrays, strict=True):
        np.testing.assert_array_equal(again, expected)


@given(grids, st.data())
def test_a_row_of_weights_scales_entries(sizes, data):
    a, p = data.draw(kron_sums(sizes)), data.draw(st.integers(0, len(sizes) - 1))
    levels = data.draw(arrays(float, sizes[p], elements=any_value))
    row = expanded(row_of_weights(sizes, p, levels))
    grid = np.stack([g.ravel() for g in np.meshgrid(*map(np.arange, sizes), indexing="ij")], axis=1)
    np.testing.assert_array_equal(row[0], levels[grid[:, p]])
    close(expanded(a.scale(p, levels)), expanded(a) * row)


@given(grids, st.data())
def test_logarithm_and_exponential_are_inverse(sizes, data):
    positive = st.floats(0.01, 100.0)
    factors = [data.draw(arrays(float, m, elements=positive)) for m in sizes]
    vector = kronecker_vector(factors, data.draw(positive))
    close(expanded(vector.log()), np.log(expanded(vector)))
    assert vector.log().n_terms <= len(sizes) + 1
    again = vector.log().exp()
    assert again.n_terms == 1
    np.testing.assert_allclose(expanded(again), expanded(vector), rtol=1e-11)


@given(grids.flatmap(kron_sums), st.data())
def test_entries_at_points_are_those_of_the_expansion(a, data):
    index = data.draw(st.lists(st.integers(0, a.n_entries - 1), max_size=5))
    points = np.stack(np.unravel_index(np.array(index, dtype=int), a.sizes), axis=1)
    close(a.evaluate(points).value, expanded(a).T[index])


@given(grids.flatmap(lambda sizes: kron_sums(sizes, max_terms=6, values=few)), st.sampled_from([0, 1, 3, 2**64 - 1]))
def test_compaction_merges_all_that_is_equal_even_where_hashes_collide(a, hash_mask):
    doubled = a + a + a * -1.0
    got = KroneckerSum(a.sizes, *_core.kron_compact(doubled._arrays, hash_mask))
    close(expanded(got), expanded(a))
    terms = [
        tuple((p, *got.factor(t, p)) for p in range(len(a.sizes)))  # by value
        for t in range(got.n_terms)
    ]
    assert len(set(terms)) == len(terms) == a.n_terms
    assert got.coefficients.any(axis=1).all()
    factors = [tuple(got.values[i:j]) for i, j in pairwise(got.offset)]
    assert len(set(factors)) == len(factors)
    assert all(np.any(np.array(f) != 1) and np.any(np.array(f) != 0) for f in factors)
