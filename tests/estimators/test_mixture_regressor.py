"""Mixture posteriors and priors through the estimator."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import pydirect
from pydirect import DirectRegressor, GaussianPrior, MeanField, MixturePrior, SpikeAndSlabPrior
from pydirect.direct import MixturePosterior
from pydirect.direct.empirical_bayes import RawPolicy
from pydirect.estimators.regression import _prior_table

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((60, 3)), RNG.standard_normal((9, 3)) * 2
Y = X[:, 0] * X[:, 1] + 0.3 * X[:, 1] ** 2 + 0.3 * RNG.standard_normal(60)
TWO = np.c_[Y, 50 - Y**2]


def fit(targets=Y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        own = {name: parameters.pop(name) for name in [*parameters] if name in MeanField().get_params()}
        posterior = MeanField(**{"n_components": 3, **own})
        return DirectRegressor(n_basis_functions=24, posterior=posterior, **parameters).fit(X, targets)


def test_a_mixture_bounds_the_evidence_from_nearer():
    model = fit()
    assert model.elbo_ >= fit(n_components=1).elbo_ - 1e-9
    assert model.elbo_ == pytest.approx(model.posterior_.elbo - model.total_weight_ * np.log(model.y_scale_[0]))
    assert model.sparsity_ == pytest.approx(model.posterior_.sparsity)
    assert model.elbo_trace_[-1] == pytest.approx(model.elbo_)
    np.testing.assert_array_equal(model.coef_, model.prior_scale_[0] * model.posterior_.mean)


@pytest.mark.parametrize("entropy", ["pairwise", "taylor"])
def test_data_that_decide_every_weight_give_a_finite_bound(entropy):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 6))
    y = x @ [1.0, -1.0, 0.5, 0.0, 0.0, 0.0] + 1e-3 * rng.standard_normal(200)
    model = DirectRegressor("linear", posterior=MeanField(n_levels=7, n_components=3, entropy=entropy), noise=1e-6).fit(
        x, y
    )
    assert np.isfinite(model.elbo_) and np.isfinite(model.predict(x)).all()


PRIORS = {
    "scales": MixturePrior.of_scales([0.5, 1.0]),
    "switched": MixturePrior.switched([0, 0, 1, 1]),
    "nested": MixturePrior((SpikeAndSlabPrior(0.9), SpikeAndSlabPrior(0.2, GaussianPrior(2.0))), (1.0, 3.0)),
}


@pytest.mark.parametrize("n_components", [1, 2])
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_mixture_priors_train_predict_and_come_back(tmp_path, prior, n_components):
    model = fit(features="linear", prior=prior, n_components=n_components, levels=[-2.0, -1.0, 0.0, 1.0, 2.0])
    assert isinstance(model.posterior_, MixturePosterior)
    assert np.isfinite(model.predict(NEW, return_std=True)).all()
    model.save(tmp_path / "m")
    loaded = pydirect.load(tmp_path / "m")
    assert loaded.posterior.prior == prior
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        np.testing.assert_array_equal(loaded.fit(X, Y).predict(NEW), model.predict(NEW))


@pytest.mark.parametrize("prior", ["gaussian", MixturePrior.of_scales([0.5, 1.0])], ids=["factorised", "mixture"])
def test_outputs_after_an_interruption_have_one_component(tmp_path, monkeypatch, prior):
    fits = []

    def second_interrupted(*arguments, on_grid=RawPolicy._on_grid):
        posterior = on_grid(*arguments)
        fits.append(posterior)
        posterior.outcome.interrupted = len(fits) == 2
        return posterior

    monkeypatch.setattr(RawPolicy, "_on_grid", second_interrupted)
    model = fit(np.c_[TWO, Y], prior=prior)
    assert model.interrupted_ and [p.interrupted for p in model.posterior_] == [False, True, True]
    assert [p.n_components for p in model.posterior_] == [3, 1, 1]
    model.save(tmp_path / "m")
    distributions = pydirect.load(tmp_path / "m").predict_distribution(NEW)
    mean, std = model.predict(NEW, return_std=True)
    for k, distribution in enumerate(distributions):
        np.testing.assert_allclose(distribution.mean, mean[:, k], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(distribution.std, std[:, k], rtol=1e-9)


LEVELS = [-2.0, -1.0, 0.0, 1.0, 2.0]


def test_groups_of_columns_leave_the_constant_on():
    """Linear features have the columns that vary and a constant, whose prior is a Gaussian whatever the groups do."""
    x = np.insert(X, 1, 7.0, axis=1)
    prior = MixturePrior.switched([5, 9, 0, 5], zero_probability=0.9)
    model = DirectRegressor("linear", posterior=MeanField(prior=prior, levels=LEVELS), noise=0.1).fit(x, Y)
    gaussian = GaussianPrior().log_mass(LEVELS)
    np.testing.assert_allclose(model.posterior_.log_prior[0, -1], gaussian)
    table = _prior_table(prior, np.array([LEVELS]), "linear", model.features_)
    np.testing.assert_array_equal(table.groups, [1, 0, 1, 2])
    np.testing.assert_allclose(table.log_masses[:, :3], prior.table(LEVELS, 4).log_masses.repeat(3, axis=1))


def test_groups_of_columns_switch_all_levels_of_a_feature_off():
    rng = np.random.default_rng(1)
    colour, size = rng.integers(3, size=300), rng.integers(4, size=300)
    x = np.c_[colour[:, None] == np.arange(3), size[:, None] == np.arange(4)].astype(float)
    y = np.array([-1.0, 0.0, 2.0])[colour] + 0.3 * rng.standard_normal(300)
    prior = MixturePrior.switched([0] * 3 + [1] * 4)
    model = DirectRegressor(posterior=MeanField(prior=prior), features="linear").fit(x, y)
    zeros = model.posterior_.weights.q[:, model.posterior_.levels[0] == 0.0].sum(axis=1)
    assert (zeros[3:7] > 0.95).all() and zeros[:3].min() < 0.05
