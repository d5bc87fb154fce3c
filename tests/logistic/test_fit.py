"""Fits of logistic regression: below the evidence, monotone, at rest, interruptible."""

from dataclasses import replace
from threading import Event

import numpy as np
import pytest
from scipy.linalg import helmert
from scipy.special import log_expit, log_softmax, logsumexp

from pydirect import GaussianPrior, evenly_spaced_levels, fit_logistic
from pydirect.logistic import LabelledRows, VariancePrior, ascent, fit_logistic_decorrelated, rows as rows_module
from pydirect.logistic.ascent import LikelihoodMoments
from pydirect.logistic.fit import ascend_rows, starting_state
from pydirect.logistic.gaussian import FullGaussian
from pydirect.logistic.latent import JAAKKOLA
from tests.helpers.oracles import enumerate_logistic_evidence

LEVELS = evenly_spaced_levels(5, 2.0)
KNOWN = VariancePrior(1.3, 0.0)


def elbo_of(fit):
    return sum(posterior.elbo for posterior in fit.posteriors)


# --- continuous weights


def log_evidence(rows, variance=1.0):
    """Log p(y) of Gaussian weights, by the trapezoidal rule over every weight, or every contrast of several."""
    basis = helmert(rows.n_functions) if rows.n_functions > 1 else np.eye(1)
    n_axes = rows.n_weights * len(basis)
    t = np.linspace(-9.0, 9.0, {1: 1001, 2: 301, 3: 61, 4: 23}[n_axes])
    w, width = 0.75 * t, 0.75 * (t[1] - t[0])
    log_mass = GaussianPrior().log_density(w) + np.log(width)
    codes = np.stack([axis.ravel() for axis in np.indices([len(w)] * n_axes)], axis=1)
    log_p = log_mass[codes].sum(axis=1)
    weights = np.sqrt(variance) * w[codes].reshape(-1, rows.n_weights, len(basis)) @ basis
    for phi, t_row, weight in zip(rows.x, rows.t, rows.weight, strict=True):
        z = rows.offset + phi @ weights
        log_likelihood = log_expit(t_row * z)[:, 0] if len(t_row) == 1 else log_softmax(z, axis=1)[:, t_row > 0][:, 0]
        log_p = log_p + weight * log_likelihood
    return logsumexp(log_p)


@pytest.mark.parametrize(("n", "b", "scale"), [(15, 1, 0.3), (15, 2, 1.0), (6, 2, 3.0), (40, 2, 2.0)])
def test_the_bound_of_two_classes_is_below_the_evidence_and_above_jaakkola(make_rows, n, b, scale):
    rows = make_rows(n, b, seed=n, scale=scale)
    truth = log_evidence(rows, 1.3)
    softmax = fit_logistic_decorrelated(rows, variance_prior=KNOWN).posterior
    jaakkola = fit_logistic_decorrelated(replace(rows, model=JAAKKOLA), variance_prior=KNOWN).posterior
    assert jaakkola.elbo - 0.01 < softmax.elbo < truth
    assert truth - softmax.elbo < 0.6 * (truth - jaakkola.elbo) + 0.01
    assert softmax.converged and (np.diff(softmax.elbo_trace) >= 0).all()


@pytest.mark.parametrize(("n", "b", "scale"), [(9, 1, 0.3), (9, 1, 1.0), (9, 1, 3.0), (15, 1, 2.0), (5, 2, 0.7)])
def test_the_bound_of_three_classes_is_below_the_evidence_of_independent_logits(make_rows, n, b, scale):
    rows = make_rows(n, b, 1, scale, n_functions=3)
    truth = log_evidence(rows, 1.3)
    fit = fit_logistic_decorrelated(rows, variance_prior=KNOWN)
    assert truth - 0.5 < elbo_of(fit) < truth
    assert all(p.converged for p in fit.posteriors) and (np.diff(fit.posteriors[0].elbo_trace) >= 0).all()


@pytest.mark.parametrize("n_functions", [1, 3])
def test_nothing_near_a_fit_at_rest_has_a_higher_bound(make_rows, n_functions):
    rows, prior = make_rows(10, 2, n_functions=n_functions), VariancePrior(0.8, 1.5)
    ascent = ascend_rows(rows, prior, max_iter=1000, stop=Event())
    rest, variance = ascent.best.posterior, float(np.exp(ascent.best.state.log_variance))

    def bound(posterior, variance):
        return rows.evaluate(posterior).log_likelihood - posterior.kl(variance) - prior.penalty(variance)

    assert bound(rest, variance) == pytest.approx(ascent.bound, abs=1e-6)
    gradient = rows.evaluate(rest).gradient - rest.mean / variance
    assert np.abs(rest.root.T @ gradient).max() < 0.02
    # The covariance is that of the precisions of its own logits.
    best = FullGaussian.solve(rows.evaluate(rest).gram, rest.mean, variance)
    np.testing.assert_allclose(best.root @ best.root.T, rest.root @ rest.root.T, rtol=0, atol=0.02 * variance)
    rng = np.random.default_rng(0)
    for scale in (0.1, 0.3):
        for _ in range(3):
            move = scale * rng.standard_normal(rest.mean.shape)
            turn = np.eye(2) + scale * np.triu(rng.standard_normal((2, 2)))
            changes = [
                (replace(rest, mean=rest.mean + rest.root @ move), variance),
                (replace(rest, root=rest.root @ turn), variance),
                (replace(rest, root=rest.root * np.exp(scale)), variance),
                (replace(rest, root=rest.root * np.exp(-scale)), variance),
                (rest, variance * np.exp(scale)),
                (rest, variance * np.exp(-scale)),
            ]
            for posterior, changed in changes:
                assert bound(posterior, changed) < ascent.bound + 3e-3
    assert bound(replace(rest, root=rest.root * np.exp(0.5)), variance) < ascent.bound - 0.01


@pytest.mark.parametrize(("likelihood", "n"), [("jaakkola", 60), ("softmax", 40)])
def test_the_prior_variance_maximises_the_bound(to_the_end, make_rows, likelihood, n):
    rows = make_rows(n, 8, likelihood=likelihood)
    free = fit_logistic_decorrelated(rows, variance_prior=VariancePrior(1.0, 1.5))
    for factor in (0.8, 1.25):
        fixed = fit_logistic_decorrelated(rows, variance_prior=VariancePrior(free.variance * factor, 0.0))
        assert fixed.variance == pytest.approx(free.variance * factor, rel=1e-12)
        penalty = 0.5 * (np.log(fixed.variance) / 1.5) ** 2
        assert fixed.posterior.elbo - penalty < free.posterior.elbo + 0.01


def test_the_weights_of_classes_are_centred_and_have_one_basis(make_rows):
    fit = fit_logistic_decorrelated(make_rows(9, 2, n_functions=3), variance_prior=KNOWN)
    np.testing.assert_allclose(sum(p.coefficients for p in fit.posteriors), 0.0, atol=1e-4)
    assert all(p.vectors is fit.posteriors[0].vectors for p in fit.posteriors)
    assert np.ptp([p.elbo for p in fit.posteriors]) == 0.0
    with pytest.raises(ValueError, match="too many values"):
        fit.posterior  # noqa: B018


# --- discrete weights


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_fitted_bounds_are_below_the_evidence(make_rows, seed, scale):
    rows, log_prior = make_rows(15, 3, seed, scale, likelihood="jaakkola"), GaussianPrior().log_mass(LEVELS)
    jaakkola = fit_logistic(rows, LEVELS, log_prior)
    exponential = fit_logistic(rows, LEVELS, log_prior, bound="exponential")
    truth = enumerate_logistic_evidence(
        rows.x, rows.t[:, 0], LEVELS, log_prior, weight=rows.weight, offset=rows.offset[0]
    )
    assert exponential.elbo <= truth and jaakkola.elbo <= truth
    assert jaakkola.converged and exponential.converged
    assert (np.diff(jaakkola.elbo_trace) >= -1e-9 * abs(jaakkola.elbo)).all()


@pytest.mark.parametrize("n", [10, 200])
def test_decorrelated_bounds_rise(make_rows, n):
    rows = make_rows(n, 8, scale=0.7, likelihood="jaakkola")
    fit = fit_logistic_decorrelated(rows)
    assert fit.posterior.converged and (np.diff(fit.posterior.elbo_trace) >= 0).all()
    # What is reported is the bound of the posterior, less what its variance's prior costs.
    bound = rows.evaluate(fit).log_likelihood
    bound -= fit.posterior.kl
    penalty = VariancePrior.wide(rows.mean_square()).penalty(fit.variance)
    assert fit.posterior.elbo == pytest.approx(bound - penalty, abs=0.01)


# --- interruptions and arguments


def test_an_interrupted_fit_keeps_the_best(make_rows, monkeypatch):
    rows, calls = make_rows(likelihood="jaakkola"), []
    original = LabelledRows.evaluate

    def interrupt(self, latent, target_step=None):
        calls.append(target_step is not None)
        if calls.count(False) == 2:
            raise KeyboardInterrupt
        return original(self, latent, target_step)

    monkeypatch.setattr(LabelledRows, "evaluate", interrupt)
    posterior = fit_logistic_decorrelated(rows).posterior
    assert posterior.interrupted and not posterior.converged and np.isfinite(posterior.elbo)


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        ({"likelihood": "jaakkola"}, {"bound": "probit"}, "bound must be one of"),
        ({"likelihood": "jaakkola"}, {"max_iter": 0}, "max_iter must be at least 1"),
        ({"likelihood": "jaakkola"}, {"log_prior": np.zeros(4)}, "log_prior"),
        ({}, {}, "rows must have likelihood='jaakkola' for a factorised posterior"),
        ({"n_functions": 3}, {}, "rows must have likelihood='jaakkola' for a factorised posterior"),
    ],
)
def test_wrong_arguments_are_named(make_rows, rows, arguments, message):
    with pytest.raises(ValueError, match=message):
        fit_logistic(make_rows(**rows), LEVELS, **{"log_prior": GaussianPrior().log_mass(LEVELS)} | arguments)


# where the ascent starts


@pytest.mark.parametrize("likelihood", ["softmax", "jaakkola"])
def test_the_first_step_is_a_regression_on_the_labels(make_rows, likelihood):
    rows = replace(make_rows(20, 3, likelihood=likelihood), offset=np.zeros(1))
    state = starting_state(rows, np.log(0.7))
    gram = (rows.x * (0.25 * rows.weight)[:, None]).T @ rows.x
    c = rows.x.T @ (0.5 * rows.weight[:, None] * rows.t)
    assert state.log_variance == pytest.approx(np.log(0.7))
    np.testing.assert_allclose(state.gram, gram, rtol=1e-7)
    np.testing.assert_allclose(state.mean, np.linalg.solve(gram + np.eye(3) / 0.7, c), rtol=1e-6)


def test_the_first_step_of_several_classes_is_centred(make_rows):
    rows = replace(make_rows(9, 2, n_functions=3), offset=np.zeros(3))
    state = starting_state(rows, np.log(0.7))
    # Of three classes the precision of a contrast is 1/3, and residuals are 2/3 and −1/3.
    np.testing.assert_allclose(state.gram, (rows.x * (rows.weight / 3)[:, None]).T @ rows.x, rtol=1e-6)
    c = rows.x.T @ (rows.weight[:, None] * ((rows.t > 0) - 1 / 3))
    np.testing.assert_allclose(state.mean, np.linalg.solve(state.gram + np.eye(2) / 0.7, c), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("n_functions", [1, 3])
def test_a_start_near_another_fit_is_nearest_to_its_logits(make_rows, n_functions):
    rows, rng = make_rows(20, 2, n_functions=n_functions), np.random.default_rng(1)
    logits, variance = 2 * rng.standard_normal((20, n_functions)), rng.uniform(0.1, 1.0, 20)
    state = starting_state(rows, np.log(0.7), LikelihoodMoments(np.zeros((2, n_functions)), logits, variance))
    precision = rows.weight * rows.model.terms(rows.t, logits + rows.offset, variance).precision
    gram = (rows.x * precision[:, None]).T @ rows.x
    np.testing.assert_allclose(state.gram, gram, rtol=1e-10)
    nearest = np.linalg.solve(gram + np.eye(2) / 0.7, rows.x.T @ (precision[:, None] * logits))
    np.testing.assert_allclose(state.mean, nearest, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("likelihood", ["jaakkola", "softmax"])
def test_a_start_from_some_of_the_rows_leads_to_the_same_fit(make_rows, monkeypatch, likelihood):
    n = 600 if likelihood == "jaakkola" else 120
    rows = make_rows(n, 4, likelihood=likelihood)
    whole = fit_logistic_decorrelated(rows)
    monkeypatch.setattr(rows_module, "START_ROWS", n // 4)
    monkeypatch.setattr(rows_module, "START_ROWS_PER_WEIGHT", 1)
    assert rows.start_size == n // 4
    part = fit_logistic_decorrelated(rows)
    assert part.posterior.elbo == pytest.approx(whole.posterior.elbo, abs=0.01)
    np.testing.assert_allclose(part.posterior.coefficients, whole.posterior.coefficients, atol=0.03)


@pytest.mark.parametrize("unit", [1e-42, 1e39])
def test_means_of_many_classes_are_found_in_any_units(unit):
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((200, 3))
    label = (2 * phi @ rng.standard_normal((3, 8)) + rng.gumbel(size=(200, 8))).argmax(axis=1)
    t = np.where(label[:, None] == np.arange(8), 1.0, -1.0)
    one, other = (
        ascend_rows(rows, VariancePrior.wide(rows.mean_square()), max_iter=100, stop=Event())
        for rows in (LabelledRows.from_arrays(phi * scale, t) for scale in (1.0, unit))
    )
    assert other.bound == pytest.approx(one.bound, abs=0.1)


def test_many_classes_end_within_a_thousandth_of_a_nat_per_row_of_the_best_bound(monkeypatch):
    rng = np.random.default_rng(0)
    phi = rng.standard_normal((300, 4))
    label = (2 * phi @ rng.standard_normal((4, 9)) + rng.gumbel(size=(300, 9))).argmax(axis=1)
    rows = LabelledRows.from_arrays(phi, np.where(label[:, None] == np.arange(9), 1.0, -1.0))
    soon = ascend_rows(rows, VariancePrior(1.0, 1.5), max_iter=100, stop=Event())
    monkeypatch.setattr(ascent, "RELATIVE_RISE_OF_MANY", 0.0)
    monkeypatch.setattr(ascent, "RISE", 1e-4)
    late = ascend_rows(rows, VariancePrior(1.0, 1.5), max_iter=100, stop=Event())
    assert len(soon.trace) < len(late.trace)
    assert late.bound - 1e-3 * len(phi) < soon.bound <= late.bound + 1e-6
