import itertools

import numpy as np
import pytest

from pydirect import _core

SIZES = [1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 67]


def ulps(got, exact):
    """Largest distance in units of the last place of the result."""
    return float((np.abs(got.astype(np.longdouble) - exact) / np.spacing(np.abs(exact).astype(got.dtype))).max())


# exp


@pytest.mark.parametrize(("low", "high"), [(-708.0, 709.0), (-40.0, 0.0), (-1.0, 1.0), (-1e-9, 1e-9)])
def test_exp_is_accurate_to_two_and_a_half_ulp(isa_level, low, high):
    x = np.random.default_rng(0).uniform(low, high, 100_000)
    assert ulps(_core.exp(x), np.exp(x.astype(np.longdouble))) < 2.5


def test_exp_has_defined_edges(isa_level):
    just_below = np.nextafter(-708.0, -np.inf)
    x = np.array([0.0, -0.0, -np.inf, np.nan, -708.0, just_below, -745.0, -1e308, 709.0, 5e-324])
    got = _core.exp(x)
    np.testing.assert_array_equal(got[[0, 1, 2, 5, 6, 7, 9]], [1, 1, 0, 0, 0, 0, 1])
    assert not np.signbit(got[2])
    assert np.isnan(got[3])
    assert got[4] == pytest.approx(np.exp(-708.0), rel=1e-15)
    assert got[4] > np.finfo(float).tiny, "no result is subnormal"
    assert got[8] == pytest.approx(np.exp(709.0), rel=1e-15)


def test_exp_has_the_same_bits_at_every_level(at_every_level):
    x = np.concatenate([np.random.default_rng(1).uniform(-750, 709, 50_000), [np.inf, -np.inf, 0.0, -0.0]])
    at_every_level(lambda: _core.exp(x))


# Sine and cosine of turns


def exact_sincos_turns(t):
    """In extended precision; the fractional part of a float is exact."""
    turn = t.astype(np.longdouble)
    angle = (turn - np.rint(turn)) * 2 * np.longdouble("3.14159265358979323846264338327950288")
    return np.sin(angle), np.cos(angle)


@pytest.mark.parametrize(
    ("dtype", "reach"), [*itertools.product([np.float64, np.float32], [0.25, 1.0, 100.0, 5e5]), (np.float64, 4e14)]
)
def test_sincos_turns_is_accurate_whatever_the_phase(isa_level, dtype, reach):
    t = np.random.default_rng(0).uniform(-reach, reach, 50_000).astype(dtype)
    for got, exact in zip(_core.sincos_turns(t), exact_sincos_turns(t), strict=True):
        assert got.dtype == dtype
        assert float(np.abs(got - exact).max()) < np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sincos_turns_is_exact_at_quarter_turns(isa_level, dtype):
    quarters = np.array([0.0, 0.25, 0.5, 0.75, 1.0, -0.25, -0.5, 7.25, -1000.5], dtype=dtype)
    sine, cosine = _core.sincos_turns(quarters)
    np.testing.assert_array_equal(sine, [0, 1, 0, -1, 0, -1, 0, 1, 0])
    np.testing.assert_array_equal(cosine, [1, 0, -1, 0, 1, 0, -1, 0, -1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [0, *SIZES])
def test_sincos_turns_has_the_same_bits_at_every_level_and_length(at_every_level, dtype, size):
    t = (1000 * np.random.default_rng(size).standard_normal(size)).astype(dtype)
    sine, cosine = at_every_level(lambda: _core.sincos_turns(t))
    np.testing.assert_array_equal(sine, [_core.sincos_turns(t[k : k + 1])[0][0] for k in range(size)])
    np.testing.assert_array_equal(cosine, [_core.sincos_turns(t[k : k + 1])[1][0] for k in range(size)])


# Accumulation


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 33, 130])
def test_add_upper_triangle_adds_in_double_and_leaves_the_rest(at_every_level, dtype, n):
    rng = np.random.default_rng(n)
    block, start = rng.standard_normal((n, n)).astype(dtype), rng.standard_normal((n, n))

    def add():
        total = start.copy()
        _core.add_upper_triangle(block, total, 2)
        return total

    np.testing.assert_array_equal(at_every_level(add), start + np.triu(block.astype(np.float64)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 33, 130])
def test_merge_upper_triangle_adds_block_and_outer_product_and_leaves_the_rest(at_every_level, dtype, n):
    rng = np.random.default_rng(n)
    block, start = rng.standard_normal((n, n)).astype(dtype), rng.standard_normal((n, n))
    shift = rng.standard_normal(n)

    def merge():
        total = start.copy()
        _core.merge_upper_triangle(block, -0.7, shift, total, 2)
        return total

    expected = start + np.triu(block.astype(np.float64) - 0.7 * np.outer(shift, shift))
    np.testing.assert_allclose(at_every_level(merge), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 100])
def test_mirror_upper_triangle_copies_every_entry(n, n_threads):
    matrix = np.random.default_rng(n).standard_normal((n, n))
    expected = np.triu(matrix) + np.triu(matrix, 1).T
    _core.mirror_upper_triangle(matrix, n_threads)
    np.testing.assert_array_equal(matrix, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n_rows", "n_columns"), [(1, 1), (3, 7), (4, 8), (5, 9), (8, 16), (13, 33)])
def test_add_transposed_product_accumulates_in_double(at_every_level, dtype, n_rows, n_columns):
    rng = np.random.default_rng(n_rows)
    rows = rng.standard_normal((n_rows, n_columns)).astype(dtype)
    y, start = rng.standard_normal(n_rows), rng.standard_normal(n_columns)

    def add():
        out = start.copy()
        _core.add_transposed_product(rows, y, out)
        return out

    expected = start + rows.astype(np.float64).T @ y
    np.testing.assert_allclose(at_every_level(add), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("n_columns", [1, 7, 8, 9, 40])
@pytest.mark.parametrize("n_rows", [1, 2, 65])
def test_row_moments_are_weighted_sums_of_rows_and_squares(at_every_level, n_rows, n_columns):
    rng = np.random.default_rng(n_columns)
    rows = rng.standard_normal((n_rows, n_columns))
    weight, spread = rng.standard_normal(n_columns), rng.random(n_columns)

    def moments(n_threads=1):
        mean, variance = np.full((2, n_rows), np.nan)
        _core.row_moments(rows, weight, spread, mean, variance, n_threads)
        return mean, variance

    mean, variance = at_every_level(moments)
    np.testing.assert_allclose(mean, rows @ weight, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(variance, rows**2 @ spread, rtol=1e-13)


# Fourier features


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("n_rows", "n_inputs", "n_frequencies"), [(1, 1, 1), (3, 2, 7), (4, 1, 16), (5, 3, 17), (9, 5, 33), (65, 2, 8)]
)
def test_fourier_features_are_cosines_and_sines_of_the_phases(at_every_level, dtype, n_rows, n_inputs, n_frequencies):
    rng = np.random.default_rng(n_rows)
    x = rng.standard_normal((n_rows, n_inputs))
    padding = (0, -n_frequencies % 16)
    turns = rng.standard_normal((n_inputs, n_frequencies))
    amplitudes = rng.random(n_frequencies)
    padded = np.pad(turns, ((0, 0), padding)).astype(dtype), np.pad(amplitudes, padding).astype(dtype)

    def features(n_threads=1):
        out = np.full((n_rows, 2 * n_frequencies + 3), -7.0, dtype=dtype)
        _core.fourier_features(x, *padded, n_frequencies, out, n_threads)
        return out

    got = at_every_level(features)
    phase = 2 * np.pi * x @ turns
    expected = np.hstack([amplitudes * np.cos(phase), amplitudes * np.sin(phase)])
    tolerance = 60 * n_inputs * np.finfo(dtype).eps
    np.testing.assert_allclose(got[:, :-3], expected, atol=tolerance, rtol=0)
    np.testing.assert_array_equal(got[:, -3:], -7.0, err_msg="columns beyond the features are the caller's")


def test_arrays_of_another_type_or_shape_are_refused_rather_than_converted():
    with pytest.raises(TypeError):
        _core.exp([0.0, 1.0])
    with pytest.raises(TypeError):
        _core.exp(np.zeros(4, dtype=np.float32))
    with pytest.raises(TypeError):
        _core.mirror_upper_triangle(np.zeros((4, 4), order="F")[:, ::2].T, 1)
    with pytest.raises(ValueError, match="block must have shape"):
        _core.add_upper_triangle(np.zeros((2, 3)), np.zeros((3, 3)), 1)
    with pytest.raises(ValueError, match="y must have shape"):
        _core.add_transposed_product(np.zeros((2, 3)), np.zeros(3), np.zeros(3))


def test_an_unknown_level_is_refused_by_name():
    with pytest.raises(ValueError, match="got 'z80'"):
        _core.select_isa_level("z80")


# Expectations over Gaussian logits


def expectations(mean, variance, n_threads=1):
    shapes = [variance.shape, mean.shape, variance.shape]
    out = [np.empty(shape) for shape in shapes]
    kernel = _core.expected_softmax if mean.ndim == 2 else _core.expected_sigmoid
    kernel(mean, variance, *out, n_threads)
    return tuple(out)


@pytest.mark.parametrize("n_classes", [None, 1, 2, 3, 10, 33])
def test_expectations_have_the_same_bits_at_every_level_and_row_by_row(at_every_level, n_classes):
    rng = np.random.default_rng(0)
    mean = rng.normal(scale=4.0, size=150 if n_classes is None else (150, n_classes))
    variance = np.exp(rng.normal(scale=3.0, size=150)) * (rng.random(150) > 0.1)
    all_rows = at_every_level(lambda: expectations(mean, variance))
    for i in (0, 17, 149):
        for whole, alone in zip(all_rows, expectations(mean[i : i + 1], variance[i : i + 1]), strict=True):
            assert whole[i].tobytes() == alone[0].tobytes()
    for serial, parallel in zip(all_rows, expectations(mean, variance, 3), strict=True):
        assert serial.tobytes() == parallel.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308])
def test_expectations_of_impossible_logits_end(isa_level, value):
    for mean, variance in [(value, 1.0), (0.0, value), (value, value), (0.0, -abs(value))]:
        expectations(np.array([[0.0, mean, 1.0]]), np.array([variance]))
        expectations(np.array([mean]), np.array([variance]))
