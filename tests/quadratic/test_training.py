"""Training of quadratic networks: what starts, optimisers, engines and new levels may and may not change."""

import threading

import numpy as np
import pytest

from pydirect import fit_quadratic_network
from pydirect.quadratic import QuadraticNetwork, training as quadratic_training
from pydirect.quadratic.training import NETWORK_ENGINES

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (90, 2))
Y = X[:, 0] * X[:, 1] - 0.5 * X[:, 0] ** 2 + 0.3 + 0.05 * RNG.standard_normal(90)
NEW = RNG.uniform(-1, 1, (40, 2))
TRUTH = NEW[:, 0] * NEW[:, 1] - 0.5 * NEW[:, 0] ** 2 + 0.3


def fit(x=X, y=Y, sizes=(4,), **options):
    return fit_quadratic_network(x, y, sizes, **{"n_restarts": 2, "n_regrids": 1, "max_iter": 150} | options)


@pytest.mark.parametrize("sizes", [(4,), (3, 2)])
def test_a_polynomial_is_learned(sizes):
    posterior = fit(sizes=sizes, n_restarts=4, n_regrids=2, max_iter=300)
    mean, variance = posterior.latent_moments(NEW)
    assert np.sqrt(np.mean((mean - TRUTH) ** 2)) < 0.05
    assert 0.03 < np.sqrt(posterior.noise.variance) < 0.1
    assert (variance >= 0).all()
    assert variance.mean() < 0.01


def test_elbo_is_that_of_the_posterior_and_the_last_of_the_trace():
    posterior = fit()
    assert posterior.elbo == posterior.elbo_trace[-1]
    assert len(posterior.elbo_trace) == posterior.n_iter
    kl = posterior.weights.kl(posterior.log_prior)
    mean, variance = posterior.latent_moments(X)
    error = np.sum((Y - mean) ** 2 + variance)
    noise = posterior.noise
    expected = -0.5 * len(Y) * (np.log(2 * np.pi) + noise.q @ np.log(noise.levels)) - 0.5 * error * noise.precision - kl
    uniform = np.log(noise.levels.size)
    expected -= np.sum(noise.q[noise.q > 0] * np.log(noise.q[noise.q > 0])) + uniform
    assert posterior.elbo == pytest.approx(expected, rel=1e-10)


def test_both_optimisers_climb_from_the_same_start():
    by_lbfgs = fit(n_restarts=1, n_regrids=0)
    by_coordinates = fit(n_restarts=1, n_regrids=0, optimizer="coordinate_ascent")
    assert (np.diff(by_coordinates.elbo_trace) > -1e-8).all()
    assert by_coordinates.elbo > by_lbfgs.elbo - 30
    assert by_coordinates.converged


@pytest.mark.parametrize("sizes", [(3,), (2, 2)])
@pytest.mark.parametrize("engine", NETWORK_ENGINES)
def test_engines_give_the_same_elbo(engine, sizes):
    if engine == "tensor" and len(sizes) == 2:
        pytest.skip("one hidden layer only")
    options = {"sizes": sizes, "n_restarts": 1, "n_regrids": 0, "max_iter": 8}
    reference = fit(engine="datum", **options)
    posterior = fit(engine=engine, **options)
    assert posterior.elbo == pytest.approx(reference.elbo, rel=1e-8)
    np.testing.assert_allclose(posterior.q, reference.q, atol=1e-6)


def test_three_hidden_layers_train():
    posterior = fit(X[:, :1], X[:, 0] ** 2, sizes=(1, 1, 1), n_restarts=1, n_regrids=0, max_iter=30)
    assert posterior.engine == "monomial"
    assert posterior.elbo > posterior.elbo_trace[0]
    assert np.isfinite(posterior.latent_moments(NEW[:, :1])).all()


def test_sample_weights_count_repetitions():
    twice = fit(np.r_[X, X], np.r_[Y, Y], max_iter=20, n_regrids=0)
    weighted = fit(sample_weight=np.full(len(Y), 2.0), max_iter=20, n_regrids=0)
    assert weighted.elbo == pytest.approx(twice.elbo, rel=1e-8)
    zero = np.r_[np.ones(60), np.zeros(30)]
    assert fit(sample_weight=zero, max_iter=20).elbo == fit(X[:60], Y[:60], max_iter=20).elbo


def test_levels_are_shared_within_a_layer_until_they_are_placed_anew():
    shared = fit(n_regrids=0, prior="spike_and_slab")
    assert len(np.unique(shared.levels[:12], axis=0)) == 1
    assert 0.0 in shared.levels[0]
    placed = fit(n_regrids=4)
    assert len(np.unique(placed.levels, axis=0)) == placed.shape.n_weights
    # Levels around a posterior are as fine as it is wide.
    assert np.median(np.ptp(placed.levels, axis=1) / placed.std) < 9


def test_prior_scale_by_empirical_bayes_is_the_root_mean_square_for_a_gaussian():
    posterior = fit(n_restarts=1, n_regrids=0)
    from pydirect import GaussianPrior

    for part in posterior.shape.slices:
        w = posterior.weights
        expected = np.sqrt(np.mean(w.variance[part] + w.mean[part] ** 2))
        assert quadratic_training._prior_scale(GaussianPrior(), w, part) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("prior", ["laplace", "student_t"])
def test_priors_with_a_density_train(prior):
    posterior = fit(prior=prior)
    assert np.sqrt(np.mean((posterior.latent_mean(NEW) - TRUTH) ** 2)) < 0.1


def test_a_warm_start_is_one_of_the_runs():
    first = fit(n_restarts=3, n_regrids=2)
    again = fit(start=first, n_restarts=1, n_regrids=0, max_iter=300)
    assert again.elbo >= first.elbo - 1e-6


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("optimizer", ["lbfgs", "coordinate_ascent"])
@pytest.mark.parametrize("at", [1, 2, 30])
def test_interruption_leaves_a_flagged_posterior(monkeypatch, at, optimizer, n_threads):
    name = "elbo_and_gradient" if optimizer == "lbfgs" else "sweep"
    original, for_each = getattr(QuadraticNetwork, name), quadratic_training.for_each
    lock, calls, stops, interrupted_threads = threading.Lock(), 0, [], []

    def recorded(task, items, n_workers, stop):
        stops.append(stop)
        return for_each(task, items, n_workers, stop)

    def interrupted(self, *arguments):
        nonlocal calls
        with lock:
            calls += 1
            if calls == at:
                interrupted_threads.append(threading.get_ident())
                raise KeyboardInterrupt
        if interrupted_threads and threading.get_ident() not in interrupted_threads:
            assert stops[-1].wait(60)  # however slowly the word gets round
        return original(self, *arguments)

    monkeypatch.setattr(quadratic_training, "for_each", recorded)
    monkeypatch.setattr(QuadraticNetwork, name, interrupted)
    posterior = fit(n_threads=n_threads, n_restarts=6, optimizer=optimizer)
    assert posterior.interrupted
    assert not posterior.converged
    assert calls <= at + 3  # the other run ends at its next step, those in the queue do not start
    assert len(posterior.elbo_trace) == max(posterior.n_iter, 1)
    assert np.isfinite([posterior.elbo, *posterior.latent_mean(NEW)]).all()


def test_interruption_between_rounds_keeps_the_last_round(monkeypatch):
    monkeypatch.setattr(quadratic_training, "place_levels_anew", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    posterior = fit()
    assert posterior.interrupted
    assert not posterior.converged
    assert posterior.elbo == fit(n_regrids=0).elbo


def test_progress_is_reported_after_every_round():
    seen = []
    fit(n_restarts=4, n_regrids=2, max_iter=3, progress=lambda *args: seen.append(args))
    assert [s[:2] for s in seen] == [(4, 7), (6, 7), (7, 7)]
