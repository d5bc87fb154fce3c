"""Classifiers whose weights are drawn one after another: as good as continuous ones, by averages over draws."""

import numpy as np
import pytest
from scipy.special import expit, ndtri
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from pydirect import DirectClassifier, Fourier, Nystroem, Sequential, SpikeAndSlabPrior, TablePrior, load
from pydirect.direct.sequential_posterior import SequentialPosterior

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((300, 3)), RNG.standard_normal((200, 3))


def labels(x, rng):
    return np.digitize(2 * np.sin(2 * x[:, 0]) + x[:, 1] + rng.logistic(size=len(x)), [-1.0, 1.0])


THREE, NEW_THREE = labels(X, RNG), labels(NEW, RNG)
FOURIER = Fourier(length_scale=1.0)
TABLE = TablePrior(np.exp(-0.5 * np.linspace(-4, 4, 15) ** 2))


def fit(y=THREE, posterior="sequential", features=FOURIER, **parameters):
    return DirectClassifier(features, 30, posterior, **parameters).fit(X, y)


@pytest.fixture(scope="module")
def two():
    return fit(THREE > 0)


@pytest.fixture(scope="module")
def three():
    return fit()


@pytest.mark.parametrize("name", ["two", "three"])
def test_the_log_loss_is_that_of_continuous_weights(request, name):
    model = request.getfixturevalue(name)
    y, new = (THREE, NEW_THREE) if name == "three" else (THREE > 0, NEW_THREE > 0)
    continuous = fit(y, "gaussian")
    assert all(isinstance(p, SequentialPosterior) for p in model.posteriors_)
    assert all(abs(p.gap) < 0.3 + 4 * p.elbo_stderr for p in model.posteriors_)
    assert model.converged_
    # Classes whose weights are drawn independently do not share the divergence of one, as continuous weights do.
    assert continuous.elbo_ - 3.0 * len(model.posteriors_) < model.elbo_ < continuous.elbo_ + 1.0
    ours, theirs = (log_loss(new, m.predict_proba(NEW)) for m in (model, continuous))
    assert ours < theirs + 0.02
    np.testing.assert_allclose(model.prior_scale_, continuous.prior_scale_, rtol=1e-6)
    assert "64 draws" in model.summary()


def test_the_bound_is_higher_than_mean_fields(two):
    assert two.elbo_ > fit(THREE > 0, "mean_field").elbo_ + 5.0


@pytest.mark.parametrize("features", [FOURIER, Nystroem(length_scale=1.0)])
def test_probabilities_are_averages_over_the_draws(features):
    model = fit(THREE > 0, Sequential(n_draws=16), features)
    basis = model.features_
    inputs, phi = basis.inputs(NEW), basis.transform(NEW)
    logit = model.intercept_ + phi @ (model.prior_scale_ * model.posterior_.draws.T)
    missing = basis.missing_variance(inputs, phi, model.mean_missing_variance_)
    missing = None if missing is None else missing[:, None] * model.prior_scale_**2
    mean, std = model.predict_logit(NEW, return_std=True)
    np.testing.assert_allclose(mean, logit.mean(axis=1), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(std**2, logit.var(axis=1) + (0.0 if missing is None else missing[:, 0]), rtol=1e-9)
    if missing is None:
        np.testing.assert_allclose(model.predict_proba(NEW)[:, 1], expit(logit).mean(axis=1), rtol=1e-9)
    else:  # the variance that features miss blurs every draw
        blurred = logit[:, :, None] + np.sqrt(missing[:, :, None]) * ndtri((np.arange(500) + 0.5) / 500)
        np.testing.assert_allclose(model.predict_proba(NEW)[:, 1], expit(blurred).mean(axis=(1, 2)), atol=1e-4)


def test_samples_are_the_kept_draws(two):
    drawn = two.sample_proba(NEW, 64)[:, 1]
    np.testing.assert_allclose(drawn.mean(axis=1), two.predict_proba(NEW)[:, 1], rtol=1e-9)
    with pytest.raises(ValueError, match="n_samples must be at most 64, the fit's n_draws, got 65"):
        two.sample_proba(NEW, 65)


def test_classes_share_the_scales_of_their_levels(three):
    units = [p.level_scales for p in three.posteriors_]
    for other in units[1:]:
        np.testing.assert_allclose(other, units[0], rtol=1e-12)
    cosines, sines = units[0][:15], units[0][15:30]
    np.testing.assert_array_equal(cosines, sines)
    right = np.mean(three.quantize(2, arithmetic="integer").predict(NEW) == NEW_THREE)
    assert right > three.score(NEW, NEW_THREE) - 0.05


@pytest.mark.parametrize(
    ("posterior", "bound"),
    [
        (Sequential(n_draws=8, level_scales="shared"), "auto"),
        (Sequential(n_draws=8, n_levels=3), "auto"),
        (Sequential(n_draws=8, levels=[-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0]), "auto"),
        (Sequential(n_draws=8, prior=SpikeAndSlabPrior(0.5)), "auto"),
        (Sequential(n_draws=8, prior=TABLE, level_scales="shared"), "auto"),
        ("mean_field", "exponential"),
    ],
    ids=str,
)
def test_other_levels_priors_and_posteriors_are_usable(tmp_path, posterior, bound):
    model = fit(THREE > 0, posterior, bound=bound)
    p = model.predict_proba(NEW)
    assert log_loss(NEW_THREE > 0, p) < 0.62 and 0 < model.sparsity_ < 1
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").predict_proba(NEW).tobytes() == p.tobytes()


def test_streams_have_the_bound_of_rows_in_memory(three):
    stream = fit().fit_stream(X, THREE, keep_features=True, sample_rows=100)
    assert stream.elbo_ == pytest.approx(three.elbo_, rel=5e-3)
    np.testing.assert_allclose(stream.predict_proba(NEW), three.predict_proba(NEW), atol=0.15)
    assert log_loss(NEW_THREE, stream.predict_proba(NEW)) < log_loss(NEW_THREE, three.predict_proba(NEW)) + 0.02
    with pytest.raises(ValueError, match="posterior must be 'gaussian' or 'sequential' for fit_stream"):
        fit(posterior="mean_field").fit_stream(X, THREE)


@pytest.mark.parametrize("posterior", ["gaussian", "sequential"])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_interrupted_fit_is_flagged_and_usable(interrupted_ascents, n_threads, posterior):
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = fit(posterior=posterior, n_threads=n_threads)
    assert model.interrupted_ and not model.converged_
    assert np.isfinite(model.predict_proba(NEW)).all()
