"""Labelled rows in memory: sums over them, better means, and losses of rows left out."""

import threading
from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import log_expit, log_softmax

from pydirect.logistic import LabelledRows
from pydirect.logistic.ascent import Ascent, LikelihoodMoments, climb
from pydirect.logistic.fit import ascend_rows, ascend_stream
from pydirect.logistic.gaussian import FullGaussian, VariancePrior, gaussian_solve
from pydirect.logistic.latent import JAAKKOLA, SOFTMAX
from pydirect.logistic.likelihood import label_log_probability
from pydirect.logistic.rows import FACTORS, MEAN_OPTIONS, RotatedFeatures, RowPasses
from pydirect.statistics.gaussian import IdentityFeatures
from pydirect.streams.rows import Rows

# Quadrature is exact to about 1e-8, and its rounding may depend on the other rows of a block.
QUADRATURE = 1e-7
KINDS = [(1, "softmax"), (1, "jaakkola"), (3, "softmax")]


def draw_posterior(b, n_functions, seed=0, spread=0.4):
    rng = np.random.default_rng(seed)
    root = spread * np.triu(rng.standard_normal((b, b)))
    root[np.diag_indices(b)] = spread * rng.uniform(0.5, 1.5, b)
    mean = rng.standard_normal((b, n_functions))
    return FullGaussian(root, mean if n_functions == 1 else mean - mean.mean(axis=1, keepdims=True))


def bound(rows, posterior, variance):
    return rows.evaluate(posterior).log_likelihood - posterior.kl(variance)


@pytest.mark.parametrize(("n_functions", "likelihood"), KINDS)
def test_an_evaluation_is_a_sum_over_the_rows(make_rows, n_functions, likelihood):
    rows = make_rows(10, 3, n_functions=n_functions, likelihood=likelihood)
    posterior = draw_posterior(3, n_functions)
    found, covariance = rows.evaluate(posterior), posterior.root @ posterior.root.T
    value, gram, gradient = 0.0, np.zeros((3, 3)), np.zeros((3, n_functions))
    for phi, t, weight in zip(rows.x, rows.t, rows.weight, strict=True):
        mean, variance = rows.offset + phi @ posterior.mean, phi @ covariance @ phi
        terms = {"softmax": SOFTMAX, "jaakkola": JAAKKOLA}[likelihood].terms(t[None], mean[None], np.array([variance]))
        value += weight * terms.value[0]
        gram += weight * terms.precision[0] * np.outer(phi, phi)
        gradient += weight * np.outer(phi, terms.residual[0])
    assert found.log_likelihood == pytest.approx(value, rel=QUADRATURE)
    np.testing.assert_allclose(found.gram, gram, rtol=QUADRATURE, atol=QUADRATURE)
    np.testing.assert_allclose(found.gradient, gradient, rtol=QUADRATURE, atol=QUADRATURE)

    mean, variance = rows.moments(posterior)
    again = rows.evaluate(LikelihoodMoments(posterior.mean, mean - rows.offset, variance))
    assert again.log_likelihood == pytest.approx(value, rel=QUADRATURE)
    np.testing.assert_allclose(again.gram, gram, rtol=QUADRATURE, atol=QUADRATURE)
    np.testing.assert_allclose(again.gradient, gradient, rtol=QUADRATURE, atol=QUADRATURE)


@pytest.mark.parametrize(("n_functions", "likelihood"), [(1, "jaakkola"), (1, "softmax"), (3, "softmax")])
def test_threads_change_no_bit(make_rows, small_blocks, n_functions, likelihood):
    rows = make_rows(600 if likelihood == "jaakkola" else 70, 3, n_functions=n_functions, likelihood=likelihood)
    posterior, weights = draw_posterior(3, n_functions), np.ones((3, n_functions, 2))
    results = []
    for n_threads in (1, 3):
        threaded = replace(rows, n_threads=n_threads)
        found = threaded.evaluate(posterior)
        mean, variance = threaded.moments(posterior)
        arrays = (found.log_likelihood, found.gram, found.gradient, mean, variance, threaded.log_likelihoods(weights))
        results.append([np.asarray(a).tobytes() for a in arrays])
    assert results[0] == results[1]


@pytest.mark.parametrize(("n_functions", "likelihood"), KINDS)
@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_better_means_raise_the_bound_to_where_its_gradient_vanishes(
    monkeypatch, make_rows, n_functions, likelihood, spread
):
    monkeypatch.setitem(MEAN_OPTIONS, "maxiter", 100)
    rows = make_rows(8, 2, n_functions=n_functions, likelihood=likelihood)
    posterior = draw_posterior(2, n_functions, spread=spread)
    found = rows.improved(posterior, 1.3)
    better = replace(posterior, mean=found.mean)
    assert bound(rows, better, 1.3) > bound(rows, posterior, 1.3)
    np.testing.assert_allclose(rows.evaluate(better).gradient, found.mean / 1.3, atol=0.02)
    mean, variance = rows.moments(better)
    np.testing.assert_allclose(found.row_mean + rows.offset, mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.row_variance, variance, rtol=1e-10)
    assert bound(rows, replace(better, mean=rows.improved(better, 1.3).mean), 1.3) == pytest.approx(
        bound(rows, better, 1.3), abs=1e-4
    )


def test_many_classes_come_to_rest_where_integrals_do(monkeypatch):
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((120, 3))
    label = (phi @ rng.standard_normal((3, 9)) + rng.gumbel(size=(120, 9))).argmax(axis=1)
    rows = LabelledRows.from_arrays(phi, np.where(label[:, None] == np.arange(9), 1.0, -1.0), offset=0.3)
    mean, variance = rng.standard_normal((120, 9)), rng.uniform(0.5, 2.0, 120)
    exact, tilted = (of(mean, slice(None))[1] for of in (rows._exact(variance), rows._tilted(mean, variance)))
    np.testing.assert_allclose(tilted, exact, atol=1e-8)
    bounds = []
    for many in (2, 100):
        monkeypatch.setattr("pydirect.logistic.rows.MANY_FUNCTIONS", many)
        bounds.append(ascend_rows(rows, VariancePrior(1.3, 0.0), max_iter=1000, stop=Event()).bound)
    np.testing.assert_allclose(*bounds, rtol=2e-3)


def test_log_likelihoods_of_draws_are_those_of_every_row(make_rows):
    rng = np.random.default_rng(0)
    for n_functions in (1, 3):
        rows, weights = make_rows(7, 2, n_functions=n_functions), rng.standard_normal((2, n_functions, 5))
        found = rows.log_likelihoods(weights)
        for s in range(5):
            z = rows.offset + rows.x @ weights[:, :, s]
            log_p = log_expit(rows.t * z)[:, 0] if n_functions == 1 else log_softmax(z, axis=1)[rows.t > 0]
            assert found[s] == pytest.approx(rows.weight @ log_p, rel=1e-12)


def rest(rows, variance=1.3):
    return ascend_rows(rows, VariancePrior(variance, 0.0), max_iter=1000, stop=Event()).best.posterior


@pytest.mark.parametrize(("n", "n_functions"), [(40, 1), (40, 3)])
def test_probabilities_left_out_are_those_of_fits_without_each_row(make_rows, n, n_functions):
    rows = make_rows(n, 2, 0, 0.7, n_functions=n_functions)
    posterior = rest(rows)
    refitted = np.empty(n)
    for i in range(n):
        row, weight = rows.chosen(np.array([i])), rows.weight - (np.arange(n) == i)  # one repetition less
        without = rest(replace(rows.chosen(np.flatnonzero(weight)), weight=weight[weight > 0]))
        refitted[i] = label_log_probability(row.t, *row.moments(without))[0]
    [found] = rows.left_out(posterior).log_probability
    fitted = label_log_probability(rows.t, *rows.moments(posterior))
    np.testing.assert_allclose(found, refitted, atol=0.2 * np.abs(refitted - fitted).max())
    assert abs(found.mean() - refitted.mean()) < 0.1 * (fitted.mean() - refitted.mean()), "far closer than fitted rows"


def test_a_row_without_weight_has_nothing_to_leave_out(make_rows):
    for n_functions in (1, 3):
        rows, posterior = make_rows(12, 2, n_functions=n_functions), draw_posterior(2, n_functions, spread=0.1)
        mean, variance = rows.moments(posterior)
        of_rows = LikelihoodMoments(posterior.mean, mean - rows.offset, variance)
        [found] = rows.left_out(posterior).log_probability
        np.testing.assert_allclose(rows.left_out(of_rows).log_probability[0], found, rtol=QUADRATURE)
        predicted = label_log_probability(rows.t, mean, variance)
        light = replace(rows, weight=1e-12 * rows.weight)
        np.testing.assert_allclose(light.left_out(posterior).log_probability[0], predicted, rtol=QUADRATURE)
        assert (found < predicted).all(), "a label is less probable where it was not seen"


def test_a_rotation_moves_no_moment(make_rows):
    rows, posterior = make_rows(9, 3, n_functions=3), draw_posterior(3, 3)
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    covariance = (turn.T @ posterior.root) @ (turn.T @ posterior.root).T
    root = np.linalg.cholesky(covariance[::-1, ::-1])[::-1, ::-1]  # upper triangular
    turned = FullGaussian(np.ascontiguousarray(root), turn.T @ posterior.mean)
    lazy = replace(rows, features=RotatedFeatures(rows.features, turn))
    for other in (rows.rotated(turn), lazy):
        for found, expected in zip(other.moments(turned), rows.moments(posterior), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert rows.rotated(turn).is_held and not lazy.is_held and lazy.held().is_held
    assert lazy.mean_square() == pytest.approx(rows.mean_square(), rel=1e-12)


def test_a_sample_has_the_weight_of_all_rows(make_rows):
    rows = make_rows(50, 2, n_functions=3)
    part = rows.sample(20)
    assert part.n_samples == 20 and part.weight.sum() == pytest.approx(rows.weight.sum(), rel=1e-12)
    assert ((part.t > 0).sum(axis=1) == 1).all()


@pytest.mark.parametrize(
    ("t", "options", "message"),
    [
        ([0, 1], {}, r"t must be -1 or 1, got 0\.0"),
        ([1, -1, 1], {}, "t must have shape"),
        ([[1, 1], [1, -1]], {}, "t must have a single 1 in every row"),
        ([[-1, -1], [1, -1]], {}, "t must have a single 1 in every row"),
        ([[1, -1], [1, -1]], {"likelihood": "jaakkola"}, "t must have one function for likelihood='jaakkola', got 2"),
        ([1, -1], {"likelihood": "probit"}, "likelihood must be one of"),
        ([1, -1], {"offset": np.nan}, "offset must be finite"),
    ],
    ids=["sign", "length", "two", "none", "one function", "unknown", "offset"],
)
def test_wrong_arguments_are_named(t, options, message):
    with pytest.raises(ValueError, match=message):
        LabelledRows.from_arrays([[1.0], [2.0]], t, **options)


def passes_over(rows, n_threads=1, n_cuts=7, stop=None):
    cuts = [Rows(rows.x[i], rows.t[i], rows.weight[i]) for i in np.array_split(np.arange(rows.n_samples), n_cuts)]
    stop = threading.Event() if stop is None else stop
    return RowPasses(IdentityFeatures(rows.n_weights), lambda: iter(cuts), rows.offset, n_threads, stop)


@pytest.mark.parametrize("n_functions", [1, 3])
def test_a_pass_has_the_sums_and_the_bound_of_rows_in_memory(make_rows, n_functions):
    rng = np.random.default_rng(1)
    rows = make_rows(30, 4, n_functions=n_functions)
    latent = FullGaussian(0.3 * np.triu(rng.standard_normal((4, 4))), rng.standard_normal((4, n_functions)))
    weights, expected = rng.standard_normal((4, n_functions, 3)), rows.evaluate(latent)
    bits = []
    for n_threads in (1, 3):
        passes = passes_over(rows, n_threads)
        found = passes.evaluate(latent)
        assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-7)
        np.testing.assert_allclose(found.gram, expected.gram, rtol=0, atol=1e-7 * np.abs(expected.gram).max())
        np.testing.assert_allclose(found.gradient, expected.gradient, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(passes.log_likelihoods(weights), rows.log_likelihoods(weights), rtol=1e-12)
        bits.append((found.log_likelihood, found.gram.tobytes(), found.gradient.tobytes()))
    assert bits[0] == bits[1], "the number of threads changes no bit"


@pytest.mark.parametrize(("n", "n_functions"), [(60, 1), (15, 3)])
def test_passes_lead_to_the_bound_of_rows_in_memory(to_the_end, make_rows, n, n_functions):
    rows, prior = make_rows(n, 3, n_functions=n_functions), VariancePrior(1.0, 1.5)
    held = ascend_rows(rows, prior, max_iter=1000, stop=threading.Event())
    streamed = ascend_stream(passes_over(rows), rows.sample(n // 2), prior, 1000, threading.Event())
    assert streamed.converged and held.converged
    assert streamed.bound == pytest.approx(held.bound, abs=0.01)
    one, other = (rows.moments(ascent.best.posterior) for ascent in (held, streamed))
    np.testing.assert_allclose(one[0], other[0], atol=0.05)
    np.testing.assert_allclose(one[1], other[1], rtol=0.05)


def test_there_is_no_pass_after_an_interruption():
    stop = threading.Event()
    stop.set()
    passes = RowPasses(IdentityFeatures(2), lambda: pytest.fail("a pass was made"), np.zeros(1), 1, stop)
    with pytest.raises(KeyboardInterrupt):
        passes.evaluate(FullGaussian(np.eye(2), np.zeros((2, 1))))


@pytest.fixture(scope="module")
def converged(make_rows):
    rows = make_rows(60, 3, 1, 1.5, n_functions=4)
    return rows, ascend_rows(rows, VariancePrior(4.0, 0.0), max_iter=100, stop=Event())


def test_variances_are_those_of_a_sharper_posterior(converged):
    rows, ascent = converged
    state, factors = ascent.best.state, np.array(FACTORS)
    unit, share = rows.in_unit_directions(state)
    for factor, found in zip(FACTORS, unit.sharpened_variances(share, factors).T, strict=True):
        sharper = FullGaussian.solve(factor * state.gram, state.mean, 4.0)
        np.testing.assert_allclose(found, rows.moments(sharper)[1], rtol=1e-9)


def test_means_of_many_classes_follow_a_row_about_as_refits_do():
    rng, picked = np.random.default_rng(2), np.arange(0, 100, 5)
    x, centre, place = (rng.uniform(0, 1, (n, 2)) for n in (100, 30, 12))
    phi = np.exp(-0.5 * cdist(x, centre, "sqeuclidean") / 0.2**2)
    label = (rng.gumbel(size=(100, 12)) - 8 * cdist(x, place)).argmax(axis=1)
    rows = LabelledRows.from_arrays(phi, np.where(label[:, None] == np.arange(12), 1.0, -1.0))
    prior, stop = VariancePrior(9.0, 0.0), Event()
    solution = ascend_rows(rows, prior, max_iter=1000, stop=stop).best
    several, one = (rows.left_out(solution.latent, state).mean[picked] for state in (solution.state, None))
    refitted = np.empty((len(picked), 12))
    for k, i in enumerate(picked):
        part = rows.chosen(np.delete(np.arange(100), i))
        start = Ascent(gaussian_solve(prior, part.improved), solution.state, 1000)
        refitted[k] = phi[i] @ climb(part, start, stop).best.posterior.mean
    moved, own, shared = (found - rows.moments(solution.latent)[0][picked] for found in (refitted, several, one))
    assert np.linalg.norm(own - moved) < 0.7 * np.linalg.norm(shared - moved)
    lengths, of_own, of_shared = (np.linalg.norm(found, axis=1) for found in (moved, own, shared))
    assert np.median(of_own / lengths) < 1.5 < 2 < np.median(of_shared / lengths), "one curvature is too small"


def test_the_factor_is_the_best_of_all_by_left_out_labels(converged):
    rows, ascent = converged
    solution = ascent.best
    left, plain = rows.left_out(solution.latent, solution.state), rows.left_out(solution.latent)
    np.testing.assert_allclose(left.variance[:, 0], plain.variance[:, 0], rtol=1e-9)
    assert (np.diff(left.variance, axis=1) < 0).all()
    values = left.log_probability @ rows.weight
    assert values[left.place()] == max(values) == pytest.approx(-left.log_loss * rows.weight.sum())
