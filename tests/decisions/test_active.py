"""Batches for active learning against refits and enumeration."""

import numpy as np
import pytest

from pydirect import DirectRegressor, Fourier, Nystroem
from pydirect.decisions import select_batch
from pydirect.linear.recursive import RecursivePosterior
from pydirect.statistics.gaussian import collect_statistics


def problem(n=60, d=3, n_outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    y = np.sin(x @ rng.normal(size=(d, n_outputs))) + 0.1 * rng.normal(size=(n, n_outputs))
    return x, y[:, 0] if n_outputs == 1 else y


def mean_variance(model, x, targets, k=0):
    """Variance of output k over targets given rows, by Cholesky, at the noise and prior scale of the model."""
    statistics = collect_statistics(model.features_, x, np.zeros(len(x)))
    noise = 1 / model.posteriors_[k].noise.precision
    posterior = RecursivePosterior.of(statistics, noise, model.prior_scale_[k] ** 2)
    return model.y_scale_[k] ** 2 * posterior.moments(model.features_.transform(targets))[1].mean()


MODELS = {
    "polynomial": {"features": "polynomial"},
    "landmarks": {"features": Nystroem(length_scale=2.0), "n_basis_functions": 20},
    "more functions than rows": {"features": Fourier(length_scale=2.0), "n_basis_functions": 90},
    "noise by evidence": {"features": "polynomial", "noise": "constant"},
}


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("n_targets", [None, 5, 400])
def test_reductions_are_those_of_refits(options, n_targets):
    x, y = problem()
    model = DirectRegressor(**{"noise": 0.02, "local": False, **options}).fit(x[:30], y[:30])
    candidates = x[30:]
    targets = None if n_targets is None else problem(n_targets, seed=1)[0]
    batch = select_batch(model, candidates, targets, n=4)
    aims = candidates if targets is None else targets
    left = [mean_variance(model, np.vstack([x[:30], candidates[batch.indices[:i]]]), aims) for i in range(5)]
    np.testing.assert_allclose(batch.reductions, -np.diff(left), rtol=1e-6, atol=1e-9 * left[0])
    assert len(set(batch.indices)) == 4


def test_few_rows_make_no_few_landmarks():
    """Of few candidates and targets, reductions are those of the exact process: its own covariances, conditioned."""
    x, y = problem()
    model = DirectRegressor(features=Nystroem(length_scale=1.0), noise=0.02, local=False).fit(x[:15], y[:15])
    targets = problem(40, seed=1)[0]
    batch = select_batch(model, x[15:], targets, n=4)
    kernel, scale = model.features_.hyperparameters, model.prior_scale_[0] ** 2

    def left(rows):
        rows, aims = (model.features_.inputs(values) for values in (rows, targets))
        cross = scale * kernel.covariance(rows, aims)
        known = scale * kernel.covariance(rows, rows) + np.eye(len(rows)) / model.posterior_.noise.precision
        fallen = np.einsum("ij,ij->j", cross, np.linalg.solve(known, cross))
        return model.y_scale_[0] ** 2 * np.mean(scale * kernel.diagonal(aims) - fallen)

    variances = [left(np.vstack([x[:15], x[15:][batch.indices[:i]]])) for i in range(5)]
    np.testing.assert_allclose(batch.reductions, -np.diff(variances), rtol=1e-4)
    assert batch.reductions.sum() > 0.2 * variances[0]


def test_every_choice_is_the_best_of_all_that_are_left():
    x, y = problem()
    model = DirectRegressor(features="polynomial", noise=0.02).fit(x[:20], y[:20])
    candidates, targets = x[20:], problem(50, seed=1)[0]
    batch = select_batch(model, candidates, targets, n=3)
    chosen = []
    for best in batch.indices:
        left = {
            j: mean_variance(model, np.vstack([x[:20], candidates[[*chosen, j]]]), targets)
            for j in range(len(candidates))
            if j not in chosen
        }
        assert min(left, key=left.get) == best
        chosen.append(best)


def test_outputs_count_together():
    x, y = problem(n_outputs=2)
    y[:, 1] *= 3
    model = DirectRegressor(features="polynomial", noise=0.05).fit(x[:20], y[:20])
    batch = select_batch(model, x[20:], n=2)
    more = np.vstack([x[:20], x[20:][batch.indices]])
    fallen = [mean_variance(model, x[:20], x[20:], k) - mean_variance(model, more, x[20:], k) for k in range(2)]
    np.testing.assert_allclose(batch.reductions.sum(), sum(fallen), rtol=1e-6)


def test_what_costs_more_must_tell_more():
    x, y = problem()
    model = DirectRegressor(features="polynomial", noise=0.02).fit(x[:20], y[:20])
    plain = select_batch(model, x[20:], n=1)
    costs = np.ones(40)
    costs[plain.indices[0]] = 100.0
    assert select_batch(model, x[20:], n=1, costs=costs).indices[0] != plain.indices[0]
    assert select_batch(model, x[20:], n=1, costs=np.full(40, 7.0)).indices[0] == plain.indices[0]


def test_a_measurement_has_the_noise_of_its_place():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(300, 1))
    y = np.sin(3 * x[:, 0]) + np.where(x[:, 0] > 0, 1.0, 0.05) * rng.normal(size=300)
    model = DirectRegressor(features=Nystroem(length_scale=0.5), n_basis_functions=30, noise="varying").fit(x, y)
    assert model.noise_model_ is not None
    for place in (-0.5, 0.5):
        own = np.array([[place]])
        aleatoric = model.predict_parts(own)[2] / model.y_scale_
        root = model.prior_scale_[0] * model.posterior_.covariance_root()
        posterior = RecursivePosterior(np.zeros(len(root)), root @ root.T, aleatoric[0] ** 2, 1.0)
        phi = model.features_.transform(x)
        before = posterior.moments(phi)[1].mean()
        after = posterior.update(model.features_.transform(own), np.zeros(1)).moments(phi)[1].mean()
        reduction = select_batch(model, own, x, n=1).reductions[0]
        np.testing.assert_allclose(reduction, model.y_scale_[0] ** 2 * (before - after), rtol=1e-6)


def test_bad_input_is_refused():
    x, y = problem()
    model = DirectRegressor(features="linear").fit(x, y)
    with pytest.raises(ValueError, match=r"candidates must be at least n = 70 rows, got 60"):
        select_batch(model, x, n=70)
    with pytest.raises(ValueError, match=r"costs must be positive, got 0\.0"):
        select_batch(model, x, n=2, costs=np.zeros(60))
    with pytest.raises(TypeError, match="model must be a DirectRegressor, got str"):
        select_batch("model", x)
    with pytest.raises(TypeError, match="model must have posterior='gaussian', got 'sequential'"):
        select_batch(DirectRegressor(features="linear", posterior="sequential").fit(x, y), x)
