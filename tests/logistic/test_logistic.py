"""Both bounds of the logistic likelihood: below the truth, exact where they say so, monotone, the same bits."""

from threading import Event

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, log_expit, softmax

from pydirect import (
    GaussianPrior,
    LabelledRows,
    LaplacePrior,
    SpikeAndSlabPrior,
    evenly_spaced_levels,
    fit_logistic,
    fit_logistic_decorrelated,
    predictive_probability,
)
from pydirect.logistic import bound as bound_module
from pydirect.logistic import exponential as exponential_module
from pydirect.logistic import gaussian
from pydirect.logistic.bound import jaakkola_bound, jaakkola_lambda
from pydirect.logistic.exponential import exponential_bound, exponential_log_terms
from pydirect.logistic.fit import BOUNDS
from pydirect.logistic.gaussian import VariancePrior
from pydirect.logistic.predictive import predictive_log_odds
from pydirect.testing import (
    enumerate_factorized,
    enumerate_hypotheses,
    enumerate_logistic_evidence,
    enumerate_logistic_predictive,
    finite_difference_gradient,
)

LEVELS = evenly_spaced_levels(5, 2.0)


def make_rows(n=12, b=4, seed=0, scale=1.0, offset=0.3):
    rng = np.random.default_rng(seed)
    phi = scale * rng.standard_normal((n, b))
    t = np.where(rng.random(n) < expit(phi @ rng.standard_normal(b)), 1.0, -1.0)
    return LabelledRows.from_arrays(phi, t, rng.integers(1, 4, n), offset=offset, n_threads=1)


def random_q(b, m, seed=0):
    return np.random.default_rng(seed).dirichlet(np.full(m, 0.7), size=b)


def expected_log_likelihood(rows, levels, q):
    """Σ ω E log σ(t z), every weight vector summed out."""
    listed = enumerate_factorized(levels, q, [1.0], [1.0])
    z = rows.offset + listed.weights @ rows.x.T
    return float(listed.weight_probability @ (log_expit(rows.t * z) @ rows.weight))


def moments(rows, levels, q):
    mean = (q * levels).sum(axis=1)
    variance = (q * (levels - mean[:, None]) ** 2).sum(axis=1)
    return rows.offset + rows.x @ mean, rows.x**2 @ variance


# Bounds


@given(st.integers(0, 2**31), st.floats(0.05, 4.0), st.integers(1, 4), st.integers(1, 5))
def test_both_bounds_are_below_the_enumerated_expectation(seed, scale, b, m):
    rows = make_rows(6, b, seed, scale)
    levels, q = np.linspace(-1.5, 1.0, m)[None], random_q(b, m, seed)
    truth = expected_log_likelihood(rows, np.broadcast_to(levels, q.shape), q)
    mean, variance = moments(rows, levels, q)
    slack = 1e-9 * (1 + abs(truth))
    best = jaakkola_bound(rows.t, mean, variance, rows.weight)
    assert best <= truth + slack
    xi = np.random.default_rng(seed).exponential(3.0, 6)
    assert jaakkola_bound(rows.t, mean, variance, rows.weight, xi) <= best + slack
    assert exponential_bound(rows, levels, q)[0] <= truth + slack


def test_the_quadratic_bound_touches_at_xi():
    z, one = np.linspace(-9, 9, 19), np.ones(19)
    for t in (-one, one):
        np.testing.assert_allclose(
            [jaakkola_bound(t[:1], z[i : i + 1], 0 * one[:1], one[:1]) for i in range(19)],
            log_expit(t * z),
            rtol=1e-12,
        )


def test_lambda_is_smooth_through_zero():
    xi = np.array([0.0, 1e-12, 9.99e-4, 1.01e-3, 1.0, 700.0])
    extended = np.maximum(xi, 1e-9).astype(np.longdouble)
    np.testing.assert_allclose(jaakkola_lambda(xi), (np.tanh(extended / 2) / (4 * extended)).astype(float), rtol=1e-9)


def test_pseudo_regression_has_the_statistics_of_the_bound():
    rows, xi = make_rows(), np.linspace(0.1, 4.0, 12)
    statistics = rows.weighted_statistics(xi)
    lam = jaakkola_lambda(xi) * rows.weight
    np.testing.assert_allclose(statistics.A, (rows.x * (2 * lam)[:, None]).T @ rows.x, rtol=1e-12)
    c = rows.x.T @ (0.5 * rows.weight * rows.t - 2 * lam * rows.offset)
    np.testing.assert_allclose(statistics.c[:, 0], c, rtol=1e-10, atol=1e-12)


# The exponential bound's kernel


def exact_log_terms(rows, levels, q):
    phi, q, levels = (np.asarray(a, dtype=np.longdouble) for a in (rows.x, q, levels))
    out = np.empty(len(phi), dtype=np.longdouble)
    for i, t in enumerate(rows.t):
        out[i] = -t * rows.offset + np.log((q * np.exp(-t * phi[i][:, None] * levels)).sum(axis=1)).sum()
    return out


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize(("n", "b", "m"), [(1, 1, 1), (3, 7, 2), (4, 8, 15), (5, 9, 4), (17, 33, 16)])
def test_log_terms_are_products_over_the_weights(at_every_level, n, b, m, even):
    rows, q = make_rows(n, b, m), random_q(b, m)
    levels = evenly_spaced_levels(m, 3.0)[None] if m > 1 else np.array([[0.7]])
    levels = levels + np.linspace(0, 1, b)[:, None]
    if not even:
        levels = levels + 0.2 * np.random.default_rng(0).standard_normal((b, m))
    got = at_every_level(lambda: exponential_log_terms(rows, levels, q))
    np.testing.assert_allclose(got, exact_log_terms(rows, levels, q).astype(float), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("even", [True, False])
def test_log_terms_are_exact_for_thousands_of_large_factors(even):
    rng = np.random.default_rng(0)
    b, levels = 2000, evenly_spaced_levels(15, 5.0)
    rows = LabelledRows.from_arrays(rng.uniform(-10, 10, (6, b)), np.sign(rng.standard_normal(6)), n_threads=1)
    q = rng.dirichlet(np.full(15, 0.3), size=b)
    q[:50] = np.eye(15)[rng.integers(0, 15, 50)]
    if not even:
        levels = np.sort(rng.uniform(-5, 5, 15))
    exact = exact_log_terms(rows, levels, q)
    assert np.abs(exact).max() > 1e4
    np.testing.assert_allclose(exponential_log_terms(rows, levels[None], q), exact.astype(float), rtol=2e-14)
    value, gradient = exponential_bound(rows, levels[None], q)
    assert value == -np.inf and np.isfinite(gradient).all()


@pytest.mark.parametrize("even", [True, False])
def test_the_gradient_is_that_of_the_value(even):
    rows, q = make_rows(9, 5), random_q(5, 5)
    levels = LEVELS if even else LEVELS + np.array([0.0, 0.1, -0.2, 0.1, 0.3])
    value, gradient = exponential_bound(rows, levels[None], q)
    assert value == pytest.approx(-(rows.weight @ np.exp(exact_log_terms(rows, levels, q)).astype(float)), rel=1e-12)
    differences = finite_difference_gradient(lambda p: exponential_bound(rows, levels[None], p)[0], q)
    np.testing.assert_allclose(gradient, differences, rtol=1e-7)


def test_the_objective_in_logits_has_its_gradient():
    rows, q = make_rows(9, 5), random_q(5, 5)
    log_prior = np.broadcast_to(SpikeAndSlabPrior(0.5).log_mass(LEVELS), q.shape)
    objective = exponential_module._ExponentialObjective(rows, np.broadcast_to(LEVELS, q.shape), log_prior, Event())
    value, gradient, _ = objective.elbo_and_gradient(5, np.log(q), np.empty(0))
    assert value == pytest.approx(objective.value(np.log(q)), rel=1e-12)
    differences = finite_difference_gradient(objective.value, np.log(q))
    np.testing.assert_allclose(gradient, differences, rtol=1e-6, atol=1e-8)
    batches = [f(np.log(q)) for f in objective.batches(4, np.random.default_rng(0))]
    assert len(batches) == 3 and all(b.shape == q.shape for b in batches)


def test_the_kernel_has_the_same_bits_for_any_threads_and_instruction_set(at_every_level):
    rows, q = make_rows(1100, 21), random_q(21, 15)
    levels = evenly_spaced_levels(15)[None]
    results = []
    for n_threads in (1, 2, 3):
        threaded = LabelledRows(rows.features, rows.x, rows.t, rows.weight, rows.offset, n_threads)
        value, gradient = at_every_level(lambda r=threaded: exponential_bound(r, levels, q))
        results.append(np.asarray(value).tobytes() + gradient.tobytes())
    assert results[0] == results[1] == results[2]


def test_features_too_large_for_the_exponential_bound_are_refused():
    rows = LabelledRows.from_arrays([[1.0], [400.0]], [1, -1])
    with pytest.raises(ValueError, match="at most 600 for the exponential bound, got 800"):
        exponential_bound(rows, np.array([[-1.0, 1.0]]), np.array([[0.5, 0.5]]))


# Fits


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_fitted_bounds_are_below_the_evidence(seed, scale):
    rows, log_prior = make_rows(15, 3, seed, scale), GaussianPrior().log_mass(LEVELS)
    jaakkola = fit_logistic(rows, LEVELS, log_prior)
    exponential = fit_logistic(rows, LEVELS, log_prior, bound="exponential")
    truth = enumerate_logistic_evidence(rows.x, rows.t, LEVELS, log_prior, weight=rows.weight, offset=rows.offset)
    assert exponential.elbo <= truth and jaakkola.elbo <= truth
    assert jaakkola.converged and exponential.converged
    assert (np.diff(jaakkola.elbo_trace) >= -1e-9 * abs(jaakkola.elbo)).all()
    batches = fit_logistic(rows, LEVELS, log_prior, bound="exponential", batch_size=5)
    assert exponential.elbo - 0.1 < batches.elbo <= exponential.elbo + 0.01


@pytest.mark.parametrize("seed", range(4))
def test_where_classes_overlap_jaakkolas_bound_is_the_tighter(seed):
    rng = np.random.default_rng(seed)
    rows = LabelledRows.from_arrays(rng.standard_normal((60, 2)), rng.choice([-1.0, 1.0], 60))
    log_prior = GaussianPrior(2.0).log_mass(LEVELS)
    jaakkola, exponential = (fit_logistic(rows, LEVELS, log_prior, bound=bound).elbo for bound in BOUNDS)
    assert jaakkola > exponential + 1.0


@pytest.mark.parametrize("mean", [0.0, 3.0, 5.0])
def test_where_the_label_is_known_from_the_logit_the_exponential_bound_is_the_tighter(mean):
    one = np.ones(1)
    jaakkola, exponential = jaakkola_bound(one, mean * one, one, one), -np.exp(0.5 - mean)
    nodes, masses = np.polynomial.hermite_e.hermegauss(60)
    assert max(jaakkola, exponential) < masses @ log_expit(mean + nodes) / masses.sum()
    assert (exponential > jaakkola) == (mean >= 3.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_no_weight_alone_can_raise_the_fitted_exponential_bound(weighted):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 3))
    t = np.where(rng.random(300) < expit(1.5 * x[:, 0] - 3.0), 1.0, -1.0)
    weight = np.where(t > 0, 6.0, 0.5) if weighted else None
    rows = LabelledRows.from_arrays(np.c_[np.ones(300), x], t, weight)
    levels = evenly_spaced_levels(15, 6.0)
    log_prior = GaussianPrior(2.0).log_mass(levels)
    posterior = fit_logistic(rows, levels, log_prior, bound="exponential")
    assert posterior.converged and (np.diff(posterior.elbo_trace) >= -1e-9).all()
    gradient = exponential_bound(rows, levels[None], posterior.q)[1]
    best = softmax(log_prior + gradient, axis=1)
    np.testing.assert_allclose(posterior.q, best, atol=0.02)
    batches = fit_logistic(rows, levels, log_prior, bound="exponential", batch_size=20)
    assert batches.elbo == pytest.approx(posterior.elbo, abs=0.5)


def test_gradients_of_batches_of_weighted_rows_are_unbiased():
    rows, q = make_rows(40, 3), random_q(3, 5)
    rows = LabelledRows.from_arrays(rows.x, rows.t, np.where(np.arange(40) < 4, 10.0, 0.1))
    log_prior = np.broadcast_to(GaussianPrior().log_mass(LEVELS), q.shape)
    objective = exponential_module._ExponentialObjective(rows, np.broadcast_to(LEVELS, q.shape), log_prior, Event())
    full = objective.of_rows(rows, 1.0, np.log(q))[1]
    for size in (1, 8):  # an epoch of batches of one size is every row once
        epoch = [f(np.log(q)) for f in objective.batches(size, np.random.default_rng(0))]
        np.testing.assert_allclose(np.mean(epoch, axis=0), full, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("batch_size", [None, 5])
def test_a_forbidden_level_keeps_no_mass_under_the_exponential_bound(batch_size):
    log_prior = GaussianPrior().log_mass(LEVELS)
    log_prior[1] = -np.inf
    posterior = fit_logistic(make_rows(), LEVELS, log_prior, bound="exponential", batch_size=batch_size)
    assert (posterior.q[:, 1] == 0).all() and np.isfinite(posterior.elbo)


def test_rows_that_weigh_nothing_leave_the_prior():
    rows = make_rows(30, 3)
    light = LabelledRows.from_arrays(rows.x, rows.t, np.full(30, 1e-12))
    for bound in BOUNDS:
        assert abs(fit_logistic_decorrelated(light, bound=bound).posterior.elbo) < 1e-6


@pytest.mark.parametrize("prior", [GaussianPrior(), LaplacePrior()])
@pytest.mark.parametrize("n", [10, 200])
def test_decorrelated_bounds_rise_and_are_ordered(n, prior):
    rows = make_rows(n, 8, scale=0.7)
    fit = fit_logistic_decorrelated(rows, prior=prior)
    trace = fit.posterior.elbo_trace
    assert fit.posterior.converged
    assert (np.diff(trace[:-1]) >= -1e-9 * abs(trace[-1])).all()
    assert abs(trace[-1] - trace[-2]) < 0.01, "levels cost next to nothing"
    loose = fit_logistic_decorrelated(rows, prior=prior, bound="exponential", max_iter=30).posterior
    assert np.isfinite(loose.elbo) and loose.converged
    mean, variance = rows.moments(fit.posterior, fit.variance)
    bound = jaakkola_bound(rows.t, mean, variance, rows.weight) - fit.posterior.weights.kl(fit.posterior.log_prior)
    assert fit.posterior.elbo <= bound + 1e-9


def test_the_prior_variance_maximises_the_bound():
    rows = make_rows(60, 8)
    free = fit_logistic_decorrelated(rows, variance_prior=VariancePrior(1.0, 1.5))
    for factor in (0.8, 1.25):
        fixed = fit_logistic_decorrelated(rows, variance_prior=VariancePrior(free.variance * factor, 0.0))
        assert fixed.variance == pytest.approx(free.variance * factor, rel=1e-12)
        penalty = 0.5 * (np.log(fixed.variance) / 1.5) ** 2
        assert fixed.posterior.elbo - penalty < free.posterior.elbo + 1e-3


def test_a_start_from_some_of_the_rows_leads_to_the_same_fit(monkeypatch):
    rows = make_rows(600, 6)
    whole = fit_logistic_decorrelated(rows)
    monkeypatch.setattr(gaussian, "START_ROWS", 100)
    part = fit_logistic_decorrelated(rows)
    assert part.posterior.n_iter < whole.posterior.n_iter
    assert part.posterior.elbo == pytest.approx(whole.posterior.elbo, abs=2e-3)
    np.testing.assert_allclose(part.posterior.coefficients, whole.posterior.coefficients, atol=0.02)


def test_weights_are_repetitions():
    rows = make_rows(14, 3)
    again = LabelledRows.from_arrays(
        np.repeat(rows.x, rows.weight.astype(int), axis=0), np.repeat(rows.t, rows.weight.astype(int)), offset=0.3
    )
    one, other = (fit_logistic_decorrelated(r).posterior for r in (rows, again))
    assert one.elbo == pytest.approx(other.elbo, abs=1e-3)


@pytest.mark.parametrize("batch_size", [1, 7, 50, 1000])
def test_batches_lead_to_the_bound_of_all_rows(batch_size):
    rows = make_rows(200, 6)
    full, batches = (fit_logistic_decorrelated(rows, batch_size=size) for size in (None, batch_size))
    assert batches.posterior.elbo == pytest.approx(full.posterior.elbo, abs=2e-3)
    assert batches.posterior.converged


def test_a_batch_of_all_rows_is_a_full_step():
    rows = make_rows(60, 4)
    prior = gaussian.VariancePrior(1.0, 0.0)
    start = gaussian.starting_point(rows, prior, 10, rows.n_samples, 0, Event())
    step = gaussian.gaussian_step(rows, prior)
    first = step(np.zeros(rows.n_samples + 1))
    rate = 2.0**-gaussian.STOCHASTIC_DECAY
    old, new = (rows.weighted_statistics(xi) for xi in (np.ones(rows.n_samples), np.exp(first.following[:-1])))
    gram, c = ((1 - rate) * a + rate * b for a, b in ((old.A, new.A), (old.c[:, 0], new.c[:, 0])))
    expected = rows.moments(gaussian.FullGaussian.solve(gram, c, 1.0))
    np.testing.assert_allclose(start[:-1], bound_module.log_xi_of(*expected), rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"log_prior": np.zeros(4)}, "log_prior"),
        ({"xi": np.ones(3)}, r"xi must have shape \(40,\)"),
        ({"xi": -np.ones(40)}, "xi must not be negative"),
        ({"xi": np.full(40, np.nan)}, "xi must be finite"),
    ],
    ids=["prior", "shape", "sign", "nan"],
)
def test_arrays_are_checked_before_anything_is_done(arguments, message):
    given = {"log_prior": GaussianPrior().log_mass(LEVELS), **arguments}
    with pytest.raises(ValueError, match=message):
        fit_logistic(make_rows(40, 3), LEVELS, **given)
    fit_logistic(make_rows(40, 3), LEVELS, GaussianPrior().log_mass(LEVELS), xi=np.zeros(40))


def test_an_event_ends_a_fit_as_an_interruption_does():
    stop = Event()
    stop.set()
    for posterior in (
        fit_logistic_decorrelated(make_rows(), stop=stop).posterior,
        fit_logistic(make_rows(), LEVELS, GaussianPrior().log_mass(LEVELS), bound="exponential", stop=stop),
    ):
        assert posterior.interrupted and not posterior.converged and np.isfinite(posterior.elbo)


def test_an_interrupted_fit_keeps_the_best(monkeypatch):
    rows, calls = make_rows(), []
    original = LabelledRows.weighted_statistics

    def interrupt(self, xi):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, xi)

    monkeypatch.setattr(LabelledRows, "weighted_statistics", interrupt)
    posterior = fit_logistic_decorrelated(rows).posterior
    assert posterior.interrupted and not posterior.converged and np.isfinite(posterior.elbo)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bound": "probit"}, "bound must be one of"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_logistic(make_rows(), LEVELS, GaussianPrior().log_mass(LEVELS), **arguments)
    with pytest.raises(ValueError, match=message):
        fit_logistic_decorrelated(make_rows(), **arguments)


def test_labels_must_be_signs():
    with pytest.raises(ValueError, match=r"t must be -1 or 1, got 0\.0"):
        LabelledRows.from_arrays([[1.0], [2.0]], [0, 1])


# Prediction


@pytest.mark.parametrize("sd", [0.0, 0.3, 1.0, 1.24, 1.26, 3.0, 10.0, 60.0])
def test_log_odds_are_those_of_the_integral(sd):
    u = np.linspace(-15, 15, 200_001)
    mass = np.exp(-0.5 * u**2) / np.exp(-0.5 * u**2).sum()
    mean = np.array([-30.0, -3.0, -0.1, 0.0, 0.7, 8.0, 25.0])
    exact = [np.log((expit(m + sd * u) @ mass) / (expit(-m - sd * u) @ mass)) for m in mean]
    np.testing.assert_allclose(predictive_log_odds(mean, np.full(7, sd**2)), exact, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(predictive_probability(mean, np.full(7, sd**2)), expit(exact), rtol=1e-8)


def test_log_odds_stay_finite_and_monotone_far_out():
    mean = np.concatenate([-np.geomspace(1e6, 1e-3, 400), np.geomspace(1e-3, 1e6, 400)])
    for sd in (0.0, 1.0, 1.3, 30.0):
        odds = predictive_log_odds(mean, np.full(mean.shape, sd**2))
        assert np.isfinite(odds).all() and (np.diff(odds) > 0).all()


def test_the_gaussian_prediction_agrees_with_enumeration_and_sampling():
    rows = make_rows(40, 6, scale=0.6)
    levels = evenly_spaced_levels(7, 2.0)
    posterior = fit_logistic(rows, levels, GaussianPrior().log_mass(levels))
    exact = enumerate_logistic_predictive(rows.x, enumerate_factorized(levels, posterior.q, [1.0], [1.0]), rows.offset)
    mean, variance = rows.moments(posterior)
    np.testing.assert_allclose(predictive_probability(mean, variance), exact, atol=2e-3)
    drawn = expit(rows.offset + posterior.sample_weights(4000, np.random.default_rng(0)) @ rows.x.T)
    error = drawn.std(axis=0, ddof=1) / np.sqrt(4000)
    assert (np.abs(drawn.mean(axis=0) - exact) < 4.5 * error).all()


def test_the_evidence_of_the_oracle_is_a_sum_over_weight_vectors():
    log_prior = np.log([0.2, 0.3, 0.5])
    phi, t = np.array([[1.0], [-2.0]]), np.array([1.0, -1.0])
    levels = np.array([-1.0, 0.0, 2.0])
    weights = enumerate_hypotheses(levels, 1)[:, 0]
    direct = np.log(np.exp(log_prior) @ (expit(weights) * expit(2 * weights)))
    assert enumerate_logistic_evidence(phi, t, levels, log_prior) == pytest.approx(direct, rel=1e-12)
