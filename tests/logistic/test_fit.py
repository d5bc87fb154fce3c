"""Fits of logistic regression: below the evidence, monotone, interruptible."""

from threading import Event

import numpy as np
import pytest
from scipy.special import expit, log_expit, logsumexp

from pydirect import GaussianPrior, LaplacePrior, StudentTPrior, evenly_spaced_levels, fit_logistic
from pydirect.logistic import LabelledRows, fit_logistic_decorrelated
from pydirect.logistic.bound import jaakkola_bound
from pydirect.logistic.discrete import ScaledLatent
from pydirect.logistic.fit import BOUNDS
from pydirect.logistic.gaussian import VariancePrior
from pydirect.testing import enumerate_hypotheses, enumerate_logistic_evidence

LEVELS = evenly_spaced_levels(5, 2.0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_fitted_bounds_are_below_the_evidence(make_rows, seed, scale):
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
def test_the_jaakkola_bound_is_tighter_where_classes_overlap(seed):
    rng = np.random.default_rng(seed)
    rows = LabelledRows.from_arrays(rng.standard_normal((60, 2)), rng.choice([-1.0, 1.0], 60))
    log_prior = GaussianPrior(2.0).log_mass(LEVELS)
    jaakkola, exponential = (fit_logistic(rows, LEVELS, log_prior, bound=bound).elbo for bound in BOUNDS)
    assert jaakkola > exponential + 1.0


def test_rows_of_negligible_weight_leave_the_prior(make_rows):
    rows = make_rows(30, 3)
    light = LabelledRows.from_arrays(rows.x, rows.t, np.full(30, 1e-12))
    for bound in BOUNDS:
        assert abs(fit_logistic_decorrelated(light, bound=bound).posterior.elbo) < 1e-6


@pytest.mark.parametrize("prior", [GaussianPrior(), LaplacePrior()])
@pytest.mark.parametrize("n", [10, 200])
def test_decorrelated_bounds_rise_and_are_ordered(make_rows, n, prior):
    rows = make_rows(n, 8, scale=0.7)
    fit = fit_logistic_decorrelated(rows, prior=prior)
    trace = fit.posterior.elbo_trace
    assert fit.posterior.converged
    assert (np.diff(trace[:-1]) >= -1e-9 * abs(trace[-1])).all()
    assert abs(trace[-1] - trace[-2]) < 0.01, "discretisation costs next to nothing"
    loose = fit_logistic_decorrelated(rows, prior=prior, bound="exponential", max_iter=30).posterior
    assert np.isfinite(loose.elbo) and loose.converged
    mean, variance = rows.moments(ScaledLatent(fit.posterior, fit.variance))
    bound = jaakkola_bound(rows.t, mean, variance, rows.weight) - fit.posterior.weights.kl(fit.posterior.log_prior)
    assert fit.posterior.elbo <= bound + 1e-9


@pytest.mark.parametrize("prior", [GaussianPrior(), LaplacePrior(), StudentTPrior(3.0)], ids=str)
@pytest.mark.parametrize(("n", "scale"), [(3, 0.3), (15, 1.0), (60, 2.0)])
def test_the_number_of_levels_changes_neither_bound_nor_moments(make_rows, prior, n, scale):
    rows, known = make_rows(n, 2, scale=scale), VariancePrior(1.0, 0.0)
    many = fit_logistic_decorrelated(rows, prior=prior, variance_prior=known).posterior
    t = np.linspace(-9.0, 9.0, 401)
    w, step = 0.01 * np.sinh(t), 0.01 * np.cosh(t) * (t[1] - t[0])
    log_prior = prior.log_density(w) + np.log(step)
    x = rows.x @ many.vectors
    z = rows.offset + x[:, 0, None, None] * w[:, None] + x[:, 1, None, None] * w
    log_likelihood = np.tensordot(rows.weight, log_expit(rows.t[:, None, None] * z), 1)
    evidence = logsumexp(log_likelihood + log_prior[:, None] + log_prior)
    assert evidence - 2.0 < many.elbo < evidence
    for n_levels in (2, 3, 5):
        few = fit_logistic_decorrelated(rows, prior=prior, variance_prior=known, n_levels=n_levels).posterior
        assert few.elbo == pytest.approx(many.elbo, abs=1e-6)
        np.testing.assert_allclose(few.mean, many.mean, atol=1e-6 * many.std.max())
        np.testing.assert_allclose(few.std, many.std, rtol=1e-6)


@pytest.mark.parametrize("prior", [GaussianPrior(), LaplacePrior(), StudentTPrior(3.0)], ids=str)
@pytest.mark.parametrize(("n", "scale"), [(3, 0.3), (60, 2.0)])
def test_few_levels_serve_the_exponential_bound(make_rows, prior, n, scale):
    rows, known = make_rows(n, 2, scale=scale), VariancePrior(1.0, 0.0)
    options = {"prior": prior, "variance_prior": known, "bound": "exponential"}
    many = fit_logistic_decorrelated(rows, n_levels=63, **options).posterior
    for n_levels in (7, 9, 15):
        few = fit_logistic_decorrelated(rows, n_levels=n_levels, **options).posterior
        assert many.elbo - 0.1 < few.elbo < many.elbo + 0.002
        assert (few.std < 1.01 * many.std).all()
        if not isinstance(prior, StudentTPrior):  # tails of hardly informed directions are cut
            np.testing.assert_allclose(few.std, many.std, rtol=0.08)
    with pytest.raises(ValueError, match="at least 7 for the exponential bound, got 6"):
        fit_logistic_decorrelated(rows, n_levels=6, **options)


def test_the_prior_variance_maximises_the_bound(make_rows):
    rows = make_rows(60, 8)
    free = fit_logistic_decorrelated(rows, variance_prior=VariancePrior(1.0, 1.5))
    for factor in (0.8, 1.25):
        fixed = fit_logistic_decorrelated(rows, variance_prior=VariancePrior(free.variance * factor, 0.0))
        assert fixed.variance == pytest.approx(free.variance * factor, rel=1e-12)
        penalty = 0.5 * (np.log(fixed.variance) / 1.5) ** 2
        assert fixed.posterior.elbo - penalty < free.posterior.elbo + 1e-3


def test_weights_are_repetitions(make_rows):
    rows = make_rows(14, 3)
    again = LabelledRows.from_arrays(
        np.repeat(rows.x, rows.weight.astype(int), axis=0), np.repeat(rows.t, rows.weight.astype(int)), offset=0.3
    )
    one, other = (fit_logistic_decorrelated(r).posterior for r in (rows, again))
    assert one.elbo == pytest.approx(other.elbo, abs=1e-3)


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
def test_arrays_are_checked_before_anything_is_done(make_rows, arguments, message):
    given = {"log_prior": GaussianPrior().log_mass(LEVELS), **arguments}
    with pytest.raises(ValueError, match=message):
        fit_logistic(make_rows(40, 3), LEVELS, **given)
    fit_logistic(make_rows(40, 3), LEVELS, GaussianPrior().log_mass(LEVELS), xi=np.zeros(40))


def test_an_event_ends_a_fit_as_an_interruption_does(make_rows):
    stop = Event()
    stop.set()
    for posterior in (
        fit_logistic_decorrelated(make_rows(), stop=stop).posterior,
        fit_logistic(make_rows(), LEVELS, GaussianPrior().log_mass(LEVELS), bound="exponential", stop=stop),
    ):
        assert posterior.interrupted and not posterior.converged and np.isfinite(posterior.elbo)


def test_an_interrupted_fit_keeps_the_best(make_rows, monkeypatch):
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
def test_wrong_arguments_are_named(make_rows, arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_logistic(make_rows(), LEVELS, GaussianPrior().log_mass(LEVELS), **arguments)
    with pytest.raises(ValueError, match=message):
        fit_logistic_decorrelated(make_rows(), **arguments)


def test_the_evidence_of_the_oracle_is_a_sum_over_weight_vectors():
    log_prior = np.log([0.2, 0.3, 0.5])
    phi, t = np.array([[1.0], [-2.0]]), np.array([1.0, -1.0])
    levels = np.array([-1.0, 0.0, 2.0])
    weights = enumerate_hypotheses(levels, 1)[:, 0]
    direct = np.log(np.exp(log_prior) @ (expit(weights) * expit(2 * weights)))
    assert enumerate_logistic_evidence(phi, t, levels, log_prior) == pytest.approx(direct, rel=1e-12)
