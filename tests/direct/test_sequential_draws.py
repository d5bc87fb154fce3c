"""Draws of weights one after another: the compiled kernel against plain NumPy, enumeration and published numbers."""

import numpy as np
import pytest
from philox import philox
from sequential_reference import log_probabilities, sequential_draws as reference_draws

from pydirect import _core

SIZES = [1, 47, 48, 49, 63, 64, 65, 200]
KINDS = ["independent", "stratified"]


def random_problem(b, n_levels=15, seed=0, shared=True, spacing=1.5):
    """Factor of a matrix whose conditional deviations are one, levels in those units and a Gaussian prior's tilt."""
    rng = np.random.default_rng(seed)
    factor = np.triu(0.3 * rng.standard_normal((b, b)) / np.sqrt(b), 1) + np.diag(rng.uniform(0.5, 1.5, b))
    rows = 1 if shared else b
    levels = spacing * (np.arange(n_levels) - (n_levels - 1) / 2) * np.ones((rows, 1))
    tilt = np.zeros((rows, n_levels))
    if not shared:
        levels = np.sort(levels + 0.4 * rng.uniform(-1, 1, levels.shape), axis=1)
        tilt = rng.standard_normal(levels.shape)
    return factor, rng.standard_normal(b), levels, tilt, rng.permutation(b)


def draw(problem, n_draws=1, seed=0, kind="independent", n_threads=1):
    return _core.sequential_draws(*problem, n_draws, seed, kind, n_threads)


def uniforms(weights, n_draws, seed=0, kind="stratified", n_threads=1):
    return _core.sequential_uniforms(np.asarray(weights, dtype=np.int64), n_draws, seed, kind, n_threads)


def in_single_precision(problem):
    return problem[0].astype(np.float32), *problem[1:]


def assert_logs_fit_codes(problem, draws, tolerance):
    codes, log_normaliser, log_q = draws
    expected = log_probabilities(*problem[:4], codes[:, problem[4]])
    np.testing.assert_allclose(log_normaliser, expected[0], rtol=0, atol=tolerance)
    np.testing.assert_allclose(log_q, expected[1], rtol=0, atol=tolerance)


# Levels and their probabilities


@pytest.mark.parametrize("kind", [*KINDS, "nearest"])
@pytest.mark.parametrize("b", SIZES)
def test_logs_are_those_of_the_codes(isa_level, b, kind):
    for shared in (True, False):
        problem = random_problem(b, seed=b, shared=shared)
        assert_logs_fit_codes(problem, draw(problem, 1 if kind == "nearest" else 37, kind=kind), 1e-10)


@pytest.mark.parametrize("b", SIZES)
def test_logs_of_single_precision_are_near_those_of_the_codes(isa_level, b):
    problem = random_problem(b, seed=b, shared=False)
    assert_logs_fit_codes(problem, draw(in_single_precision(problem), 37), 2e-5 * b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("b", SIZES)
def test_levels_are_where_the_cumulative_mass_passes_the_uniform_number(b, kind):
    problem = random_problem(b, seed=b, shared=False)
    u = uniforms(problem[4], 19, 5, kind)
    # Equal in every weight, as no number is within rounding of a boundary.
    expected = reference_draws(*problem[:4], u.T)
    codes, *logs = draw(problem, 19, 5, kind)
    np.testing.assert_array_equal(codes[:, problem[4]], expected[0])
    np.testing.assert_allclose(logs, expected[1:], rtol=0, atol=1e-10)


@pytest.mark.parametrize("precision", [tuple, in_single_precision])
@pytest.mark.parametrize("b", SIZES)
def test_nearest_takes_the_most_probable_level_each_time(b, precision):
    problem = random_problem(b, seed=b, shared=False)
    codes = draw(precision(problem), kind="nearest")[0]
    np.testing.assert_array_equal(codes[:, problem[4]], reference_draws(*problem[:4])[0])


@pytest.mark.parametrize("precision", [tuple, in_single_precision])
@pytest.mark.parametrize(("kind", "n_draws"), [("independent", 200_000), ("stratified", 2**17)])
def test_frequencies_are_those_of_q(kind, n_draws, precision):
    b, n_levels = 5, 7
    problem = random_problem(b, n_levels, seed=3, shared=False, spacing=0.9)
    problem[0][:] += np.triu(np.random.default_rng(4).standard_normal((b, b)), 1) * 0.5  # correlated
    points = np.stack(np.meshgrid(*[np.arange(n_levels)] * b, indexing="ij"), axis=-1).reshape(-1, b)
    q = np.exp(log_probabilities(*problem[:4], points)[1]).reshape((n_levels,) * b)
    assert q.sum() == pytest.approx(1.0, abs=1e-12)
    codes = draw(precision(problem), n_draws, 11, kind)[0][:, problem[4]]
    for i in range(b):
        for j in range(i):
            counts = np.bincount(n_levels * codes[:, j].astype(int) + codes[:, i], minlength=n_levels**2)
            expected = n_draws * q.sum(axis=tuple({*range(b)} - {i, j})).ravel()
            assert (np.abs(counts - expected) < 5 * np.sqrt(2 * expected) + 3).all()  # pairs share |u − ½|


@pytest.mark.parametrize("precision", [tuple, in_single_precision])
def test_levels_without_prior_mass_are_never_drawn(isa_level, precision):
    factor, mean, levels, _, order = random_problem(70, 9)
    tilt = np.zeros((70, 9))
    tilt[:, [0, 4, 8]] = -np.inf
    tilt[:, 1:8][np.random.default_rng(0).random((70, 7)) < 0.3] = -np.inf
    tilt[:, 2] = 0.0
    problem = precision((factor, mean + np.linspace(-30, 30, 70), levels, tilt, order))
    codes, log_normaliser, log_q = draw(problem, 500)
    assert np.isfinite(tilt[np.arange(70), codes[:, order]]).all()
    assert np.isfinite(log_normaliser).all()
    assert np.isfinite(log_q).all()


@pytest.mark.parametrize("precision", [tuple, in_single_precision])
def test_no_prior_mass_at_all_is_seen_in_the_normaliser(precision):
    factor, mean, levels, tilt, order = random_problem(5, 9, shared=False)
    tilt[2] = -np.inf
    codes, log_normaliser, _ = draw(precision((factor, mean, levels, tilt, order)), 3)
    assert not np.isfinite(log_normaliser).any()
    assert (codes < 9).all()


@pytest.mark.parametrize("precision", [tuple, in_single_precision])
def test_levels_far_apart_leave_one_level_with_all_the_mass(precision):
    factor, mean, levels, tilt, order = random_problem(50, 9, shared=False)
    problem = 1e5 * factor, mean, levels, tilt, order
    codes, log_normaliser, log_q = draw(precision(problem), 10)
    np.testing.assert_array_equal(codes, codes[:1].repeat(10, axis=0))
    np.testing.assert_allclose(log_normaliser, log_probabilities(*problem[:4], codes[:, order])[0], rtol=1e-4)
    np.testing.assert_array_equal(log_q, 0)


@pytest.mark.parametrize("n_levels", [1, 2, 3, 16, 256])
def test_any_number_of_levels(n_levels):
    problem = random_problem(20, n_levels, shared=False, spacing=0.7)
    draws = draw(problem, 40)
    assert draws[0].max() < n_levels
    assert_logs_fit_codes(problem, draws, 1e-10)


# What draws do not depend on


@pytest.mark.parametrize("precision", [tuple, in_single_precision])
@pytest.mark.parametrize(("kind", "n_draws"), [("nearest", 1), ("stratified", 2), ("stratified", 100), (KINDS[0], 33)])
def test_bits_do_not_depend_on_threads_or_instruction_set(at_every_level, precision, kind, n_draws):
    problem = precision(random_problem(130, shared=False))
    one, two, seven = (at_every_level(lambda n=n: draw(problem, n_draws, 2, kind, n)) for n in (1, 2, 7))
    for a, b, c in zip(one, two, seven, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_does_not_depend_on_their_number(kind):
    problem = random_problem(60)
    all_draws = draw(problem, 100, 9, kind)
    for n in (1, 2, 15, 16, 17, 64):
        for few, many in zip(draw(problem, n, 9, kind), all_draws, strict=True):
            np.testing.assert_array_equal(few, many[:n])


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_independent_weights_does_not_matter(kind):
    factor, mean, levels, tilt, order = random_problem(60, shared=False)
    factor = np.diag(np.diag(factor))
    p = np.random.default_rng(1).permutation(60)
    codes = draw((factor, mean, levels, tilt, order), 20, 4, kind)[0]
    permuted = np.ascontiguousarray(factor[p][:, p]), mean[p], levels[p], tilt[p], order[p]
    np.testing.assert_array_equal(draw(permuted, 20, 4, kind)[0], codes)


# Uniform numbers


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_answers(counter, key, expected):
    assert " ".join(f"{word:08x}" for word in philox(counter, key)) == expected


@pytest.mark.parametrize("seed", [0, 2**64 - 1, 0x299F31D0A4093822])
def test_independent_numbers_are_philox_of_seed_weight_and_draw(at_every_level, seed):
    weights = [0, 1, 77, 2**32 + 5, 2**62]
    got = at_every_level(lambda: uniforms(weights, 37, seed, "independent"))
    for weight, row in zip(weights, got, strict=True):
        for i, u in enumerate(row):
            # Draws 16 m + l and 16 m + 8 + l share a counter.
            counter = [i // 16 * 8 + i % 8, weight & 0xFFFFFFFF, weight >> 32, 0]
            words = philox(counter, [seed & 0xFFFFFFFF, seed >> 32])[i // 8 % 2 * 2 :]
            assert u == ((((words[1] << 32) | words[0]) >> 12) + 0.5) / 2**52


@pytest.mark.parametrize("n_draws", [2**k for k in range(9)])
def test_stratified_numbers_fall_one_into_each_of_2_to_the_k_parts(at_every_level, n_draws):
    u = at_every_level(lambda: uniforms(range(50), 256, 3))[:, :n_draws]
    np.testing.assert_array_equal(np.sort(np.floor(u * n_draws), axis=1), np.tile(np.arange(n_draws), (50, 1)))


def test_stratified_numbers_come_in_antithetic_pairs():
    u = uniforms(range(50), 101)
    np.testing.assert_array_equal(u[:, 0:100:2] + u[:, 1:100:2], 1.0)


def test_stratified_numbers_have_a_permutation_of_their_own_for_every_weight():
    part = np.floor(16 * uniforms(range(200), 16))
    assert len(np.unique(part, axis=0)) > 190
    assert len(np.unique(part[:, ::2] < 8, axis=0)) > 120, "which of a pair is the lower one is random, too"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("i", [0, 1, 2, 7, 64, 129])
def test_each_draw_is_uniform_and_weights_are_independent(kind, i):
    n = 40_000
    u = uniforms(range(n), 130, 8, kind)[:, i]
    assert u.min() > 0
    assert u.max() < 1
    distance = np.abs(np.sort(u) - (np.arange(n) + 0.5) / n).max()
    assert distance < 2 / np.sqrt(n)  # Kolmogorov and Smirnov, 0.1 %
    for lag in (1, 2, 8):
        assert abs(np.corrcoef(u[lag:], u[:-lag])[0, 1]) < 4 / np.sqrt(n)


@pytest.mark.parametrize("pair", [(0, 2), (0, 4), (2, 4), (2, 8), (10, 14)])
def test_stratified_numbers_are_independent_within_their_parts(pair):
    n, cells = 40_000, 8
    u = uniforms(range(n), 16)[:, list(pair)]
    v = np.minimum(u, 1 - u) * 2
    place = np.floor(np.mod(8 * v, 1) * cells).astype(int)  # 16 draws are 8 pairs, one in each eighth
    counts = np.bincount(place[:, 0] * cells + place[:, 1], minlength=cells**2)
    assert ((counts - n / cells**2) ** 2).sum() / (n / cells**2) < 110  # chi-square of 63 degrees


def test_stratified_numbers_of_two_weights_are_independent_within_a_set():
    n, cells = 2**13, 8
    u = uniforms(range(6), n)
    for number in (u, 2 * np.abs(u - 0.5)):  # the second is the same in both draws of a pair
        place = np.floor(number * cells).astype(int)
        for i in range(6):
            for j in range(i):
                counts = np.bincount(cells * place[i] + place[j], minlength=cells**2)
                assert (np.abs(counts - n / cells**2) < 5 * np.sqrt(2 * n / cells**2)).all()
